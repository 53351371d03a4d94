package settings

import (
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// Bounds are the smallest and largest value of a number or a duration, from the tags
// min and max of its field. They apply to each element of a list.
type Bounds struct{ Min, Max string }

// BoundsOf returns the bounds of a field; ok is false if it is no number or has none.
func BoundsOf(field reflect.StructField) (b Bounds, ok bool) {
	low, hasLow := field.Tag.Lookup("min")
	high, hasHigh := field.Tag.Lookup("max")
	return Bounds{low, high}, hasLow && hasHigh && isNumber(field.Type)
}

func isNumber(t reflect.Type) bool {
	return reflect.Zero(element(t)).CanInt()
}

func element(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return t
}

// outOfBounds names each setting that is too small or too large, with its bounds.
func outOfBounds(s Settings) (bad []string) {
	values := reflect.ValueOf(s)
	for i := range values.NumField() {
		field, value := values.Type().Field(i), values.Field(i)
		b, ok := BoundsOf(field)
		if !ok {
			continue
		}
		each := []reflect.Value{value}
		if value.Kind() == reflect.Slice {
			each = each[:0]
			for j := range value.Len() {
				each = append(each, value.Index(j))
			}
		}
		for _, v := range each {
			low, errLow := number(b.Min, v.Type())
			high, errHigh := number(b.Max, v.Type())
			if errLow != nil || errHigh != nil || v.Int() < low || v.Int() > high {
				bad = append(bad, fmt.Sprintf("%s must be %s to %s, is %v", field.Tag.Get("env"), b.Min, b.Max, v.Interface()))
			}
		}
	}
	return bad
}

// number reads a bound as a value of type t.
func number(text string, t reflect.Type) (int64, error) {
	if t == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(text)
		return int64(d), err
	}
	return strconv.ParseInt(text, 10, t.Bits())
}
