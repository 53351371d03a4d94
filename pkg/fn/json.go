package fn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// MaxDepth is how deep arrays and objects may be nested.
const MaxDepth = 32

// DecodeJSON reads exactly one JSON value into v. Unlike encoding/json it
// refuses duplicate names, data after the value, broken UTF-8 and nesting beyond
// MaxDepth, matches names exactly, and hands numbers over as their text.
func DecodeJSON(data []byte, v any) error {
	if target, ok := v.(*any); ok {
		// For validation against a schema, which bounds the depth of what passes.
		if err := checkJSON(data); err != nil {
			return err
		}
		return jsonv2.Unmarshal(data, target, jsonv2.WithUnmarshalers(numbersAsText))
	}
	return jsonv2.Unmarshal(data, v, jsonv2.RejectUnknownMembers(true), jsonv2.MatchCaseInsensitiveNames(false))
}

var numbersAsText = jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported // not a number: the usual way
	}
	number, err := d.ReadValue()
	*v = json.Number(number)
	return err
})

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
			return fmt.Errorf("the JSON is broken at byte %d: %v", syntax.ByteOffset, syntax.Err)
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
