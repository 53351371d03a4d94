package matchmaking

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Limits of a ticket's attributes.
const (
	MaxAttributes      = 16
	MaxAttributeBytes  = 128     // of a string
	MaxAttributesBytes = 1 << 10 // of all, as canonical JSON, which Redis stores
	MaxSkill           = 10_000
	MaxNumber          = 1e15 // a float64 holds it exactly, and every client can read it
)

// SkillAttribute is the attribute that ranked modes compare.
const SkillAttribute = "skill"

// AttributeName is the pattern of an attribute's name.
const AttributeName = `^[a-zA-Z0-9_.-]{1,64}$`

var attributeName = regexp.MustCompile(AttributeName)

// Attributes are a ticket's numbers and strings, by which players are matched.
type Attributes struct {
	values map[string]any // float64 or string
	text   string         // canonical JSON
}

func badAttributes(format string, args ...any) error {
	return fault.New(fault.Invalid, "attributes_invalid", "attributes: "+format, args...)
}

// ParseAttributes reads attributes, which may be empty. Its errors are fault.Invalid.
func ParseAttributes(raw map[string]json.RawMessage) (Attributes, error) {
	a := Attributes{values: make(map[string]any, len(raw))}
	if len(raw) > MaxAttributes {
		return a, badAttributes("there are %d; send at most %d.", len(raw), MaxAttributes)
	}
	for name, value := range raw {
		if !attributeName.MatchString(name) {
			return a, badAttributes("a name is 1 to 64 letters, digits, _, . and -, not %q.", name)
		}
		parsed, err := parseValue(name, value)
		if err != nil {
			return a, err
		}
		a.values[name] = parsed
	}
	text, err := json.Marshal(a.values)
	if err != nil {
		return a, badAttributes("they cannot be read.")
	}
	canonical, err := jcs.Transform(text)
	if err != nil {
		return a, badAttributes("they cannot be read.")
	}
	if len(canonical) > MaxAttributesBytes {
		return a, badAttributes("they are %d bytes of JSON; send at most %d.", len(canonical), MaxAttributesBytes)
	}
	a.text = string(canonical)
	return a, nil
}

func parseValue(name string, raw json.RawMessage) (any, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, badAttributes("%s is a number that is too large.", name)
	}
	switch v := value.(type) {
	case float64:
		if math.Abs(v) > MaxNumber {
			return nil, badAttributes("%s must be from -1e15 to 1e15.", name)
		}
		return v + 0, nil // no negative zero
	case string:
		if len(v) > MaxAttributeBytes || !utf8.ValidString(v) || slices.ContainsFunc([]rune(v), func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, badAttributes("%s must be at most %d bytes of printable text.", name, MaxAttributeBytes)
		}
		return v, nil
	}
	return nil, badAttributes("%s must be a number or a string.", name)
}

// skill returns attributes.skill as the scripts take it.
func (a Attributes) skill() (string, error) {
	skill, ok := a.values[SkillAttribute].(float64)
	if !ok || skill < 0 || skill > MaxSkill {
		return "", badAttributes("this mode pairs by skill: send a number from 0 to %d.", MaxSkill)
	}
	return strconv.FormatFloat(skill, 'f', -1, 64), nil
}

// value returns an attribute as JSON, and whether it is there.
func (a Attributes) value(name string) (string, bool) {
	value, ok := a.values[name]
	if !ok {
		return "", false
	}
	text, err := json.Marshal(value)
	return string(text), err == nil
}
