package transfer

import "github.com/danielgtaylor/huma/v2"

// amount is a JSON number as its text: a float would lose digits.
type amount struct{ text string }

// UnmarshalJSON keeps the text. The domain validates it.
func (a *amount) UnmarshalJSON(text []byte) error {
	a.text = string(text)
	return nil
}

// Schema says that it is a number. Its bounds are for readers of the document: the domain
// validates the text, and its error says more.
func (amount) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeNumber, Extensions: map[string]any{"minimum": 0, "exclusiveMaximum": 1_000_000_000_000_000}}
}
