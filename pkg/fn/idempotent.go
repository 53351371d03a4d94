package fn

import (
	"net/http"
	"regexp"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// KeyHeader is embedded in the input of a write whose key is the caller's, or was
// issued to them, and whose answer is kept.
type KeyHeader struct {
	IdempotencyKey string `header:"Idempotency-Key" required:"true" minLength:"1" pattern:"^[ -~]+$" doc:"Names this request: the same key with the same request gets the same answer again. Bare or quoted, up to 255 printable ASCII characters." example:"4c5f6f0e-5c1a-4b0e-8f6e-2f1d7f3c9a10"`

	key string
}

// Key is the parsed Idempotency-Key.
func (k *KeyHeader) Key() string { return k.key }

// Resolve parses the header; huma calls it.
func (k *KeyHeader) Resolve(c huma.Context) []error {
	key, err := idempotency.ParseKey(values(c, idempotency.Header))
	if err != nil {
		return []error{problem.From(err)}
	}
	k.key = key
	return nil
}

// values are those of all headers called name.
func values(c huma.Context, name string) (list []string) {
	c.EachHeader(func(header, value string) {
		if http.CanonicalHeaderKey(header) == name {
			list = append(list, value)
		}
	})
	return list
}

// WriteHeaders is embedded in the input of an idempotent write.
type WriteHeaders struct {
	IdempotencyKey string `header:"Idempotency-Key" required:"true" minLength:"1" pattern:"^[ -~]+$" doc:"Names this request for 24 hours: the same key with the same request gets the same answer again. Bare or quoted, up to 255 printable ASCII characters." example:"p_456"`
	IfMatchHeader  string `header:"If-Match" pattern:"^(\"[1-9][0-9]*\"|[1-9][0-9]*)$" doc:"The version that must be current, as in ETag; otherwise the answer is 412." example:"\"12\""`

	key     string
	ifMatch int64
}

// Key is the parsed Idempotency-Key.
func (w *WriteHeaders) Key() string { return w.key }

// IfMatch is the version that must be current, 0 for any.
func (w *WriteHeaders) IfMatch() int64 { return w.ifMatch }

// Resolve parses the headers; huma calls it.
func (w *WriteHeaders) Resolve(c huma.Context) []error {
	key, err := idempotency.ParseKey(values(c, idempotency.Header))
	if err != nil {
		return []error{problem.From(err)}
	}
	w.key = key
	if w.ifMatch, err = parseIfMatch(values(c, "If-Match")); err != nil {
		return []error{problem.From(err)}
	}
	return nil
}

// version is one entity tag of ours; the quotes may be left out.
var version = regexp.MustCompile(`^(?:"([1-9][0-9]*)"|([1-9][0-9]*))$`)

func parseIfMatch(values []string) (int64, error) {
	if len(values) == 0 {
		return 0, nil
	}
	if match := version.FindStringSubmatch(values[0]); match != nil && len(values) == 1 {
		if parsed, err := strconv.ParseInt(match[1]+match[2], 10, 64); err == nil {
			return parsed, nil
		}
	}
	return 0, fault.New(fault.Malformed, "if_match_invalid", `If-Match must be one version in quotes, as it came in ETag, such as "12".`)
}

// Stored is the output of an idempotent write: the stored answer, byte for byte.
type Stored struct {
	Status      int
	ContentType string `header:"Content-Type" hidden:"true"`
	ETag        string `header:"ETag" hidden:"true"`                // Versioned documents it
	Replayed    string `header:"Idempotent-Replayed" hidden:"true"` // Stores documents it
	Body        []byte
}

// NewStored returns the output for a stored answer.
func NewStored(r idempotency.Response) *Stored {
	out := &Stored{Status: r.Status, ContentType: "application/json", Body: r.Body}
	if r.ETag != "" {
		out.ETag = strconv.Quote(r.ETag)
	}
	if r.Replayed {
		out.Replayed = "true"
	}
	return out
}

// Write sends it without huma, for events.
func (s *Stored) Write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", s.ContentType)
	if s.ETag != "" {
		h.Set("ETag", s.ETag)
	}
	if s.Replayed != "" {
		h.Set(idempotency.ReplayedHeader, s.Replayed)
	}
	w.WriteHeader(s.Status)
	_, _ = w.Write(s.Body) // the caller may be gone
}
