package fn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// MaxDepth is how deep arrays and objects may be nested.
const MaxDepth = 32

// DecodeJSON reads exactly one JSON value into v. Unlike encoding/json it
// refuses duplicate names, data after the value, broken UTF-8 and nesting beyond
// MaxDepth, matches names exactly, and hands numbers over as their text. null is
// taken only where v has an any or a json.RawMessage.
func DecodeJSON(data []byte, v any) error {
	if target, ok := v.(*any); ok {
		// For validation against a schema, which bounds the depth of what passes.
		if err := checkJSON(data); err != nil {
			return err
		}
		return jsonv2.Unmarshal(data, target, jsonv2.WithUnmarshalers(numbersAsText))
	}
	err := jsonv2.Unmarshal(data, v, jsonv2.RejectUnknownMembers(true), jsonv2.MatchCaseInsensitiveNames(false), jsonv2.WithUnmarshalers(noNull))
	return misfit(err)
}

var numbersAsText = jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported // not a number: the usual way
	}
	number, err := d.ReadValue()
	*v = json.Number(number)
	return err
})

// noNull refuses null where no type says that it is possible. huma accepts null for an optional
// property even if its schema has a type.
var noNull = jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v any) error {
	if d.PeekKind() == 'n' {
		switch target := reflect.TypeOf(v).Elem(); {
		case target.Kind() == reflect.Interface, target == reflect.TypeFor[json.RawMessage]():
		default:
			return errNull
		}
	}
	return errors.ErrUnsupported // the usual way
})

var errNull = errors.New("null")

// misfit says in the caller's words what is wrong with a value that passed its schema, or
// had none; the text of the Go error is about Go types.
func misfit(err error) error {
	var semantic *jsonv2.SemanticError
	if !errors.As(err, &semantic) {
		return err
	}
	name := strings.Join(slices.Collect(semantic.JSONPointer.Tokens()), ".")
	if name == "" {
		name = "the value"
	}
	switch {
	case errors.Is(err, errNull):
		return fmt.Errorf("%s must not be null", name)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is a number that is too large", name)
	case semantic.JSONKind == '0' && semantic.GoType != nil && (semantic.GoType.Kind() == reflect.Int || semantic.GoType.Kind() == reflect.Int64):
		return fmt.Errorf("%s must be a whole number, written without fraction and exponent", name)
	}
	return err
}

// checkJSON reads the whole text once. Its errors are made for the caller.
func checkJSON(data []byte) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(data))
	if err := skipValue(decoder); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the JSON ends too early")
		}
		return err
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("there is data after the JSON value, at byte %d", decoder.InputOffset())
	}
	return nil
}

func skipValue(decoder *jsontext.Decoder) error {
	for {
		_, err := decoder.ReadToken()
		var syntax *jsontext.SyntacticError
		switch {
		case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
			return fmt.Errorf("the name at %s stands twice", syntax.JSONPointer)
		case errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("the JSON is broken at byte %d: %w", syntax.ByteOffset, syntax.Err)
		case err != nil:
			return err
		case decoder.StackDepth() > MaxDepth:
			return fmt.Errorf("the JSON is nested deeper than %d levels", MaxDepth)
		case decoder.StackDepth() == 0:
			return nil
		}
	}
}

func malformed(err error) error {
	return fault.New(fault.Malformed, "request_malformed", "The request cannot be read: %v.", err)
}
