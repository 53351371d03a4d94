package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// The forms of the pages. Viewers may send a dry run; every other form needs an operator.

func mayAct(r *http.Request) error {
	if !auth.From(r.Context()).Has(actors...) {
		return auth.ErrForbidden
	}
	return nil
}

// filterOf reads a filter from a query or form; times are of UTC, as a browser's field
// writes them.
func filterOf(values url.Values) (Filter, error) {
	f := Filter{
		ID: values.Get("id"), EventType: values.Get("event_type"), Owner: values.Get("owner"), ErrorContains: values.Get("error_contains"),
	}
	for name, into := range map[string]*time.Time{"failed_from": &f.FailedFrom, "failed_before": &f.FailedBefore} {
		if text := values.Get(name); text != "" {
			at, err := time.Parse("2006-01-02T15:04", text)
			if err != nil {
				return f, fault.New(fault.Invalid, "request_invalid", "%s must be a date and time (UTC), such as 2026-01-08T07:10.", name)
			}
			*into = at
		}
	}
	return f, nil
}

// dryRunData is the form with which an operator confirms an act.
type dryRunData struct {
	Wish   Wish
	Filter string // as JSON, for the form
	Fits   int
	More   bool
	Key    string // so that a form that is sent twice begins one act
}

// form parses a form of at most fn.MaxBodyBytes.
func form(r *http.Request) (url.Values, error) {
	if err := r.ParseForm(); err != nil {
		return nil, fault.New(fault.Malformed, "request_malformed", "The form cannot be read.")
	}
	return r.PostForm, nil
}

func (f *function) dryRunForm(r *http.Request) (any, error) {
	values, err := form(r)
	if err != nil {
		return nil, err
	}
	filter, err := filterOf(values)
	if err != nil {
		return nil, err
	}
	wish := Wish{Kind: values.Get("kind"), Queue: r.PathValue("queue"), Filter: filter.filter()}
	if ids := values["ids"]; len(ids) > 0 {
		wish.Filter = act.Filter{IDs: ids}
	}
	n, err := f.count(r.Context(), wish)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(wish.Filter)
	return dryRunData{Wish: wish, Filter: string(text), Fits: n, More: n >= act.MaxCounted, Key: uuid.NewString()}, err
}

// acting serves a form that begins or turns an act.
func (f *function) acting(do func(*http.Request) (act.Act, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := mayAct(r); err != nil {
			f.failed(w, r, err)
			return
		}
		done, err := do(r)
		if err != nil {
			f.failed(w, r, err)
			return
		}
		if r.URL.Path == "/console/acts" {
			w.Header().Set("HX-Redirect", "/console/acts/"+done.ID)
			w.WriteHeader(http.StatusCreated)
			return
		}
		f.render(w, r, http.StatusOK, "progress", view{Data: done})
	}
}

func (f *function) beginForm(r *http.Request) (act.Act, error) {
	values, err := form(r)
	if err != nil {
		return act.Act{}, err
	}
	o := Order{Wish: Wish{Kind: values.Get("kind"), Queue: values.Get("queue")}, Reason: strings.TrimSpace(values.Get("reason"))}
	if err := json.Unmarshal([]byte(values.Get("filter")), &o.Filter); err != nil {
		return act.Act{}, fault.New(fault.Malformed, "request_malformed", "The form's filter cannot be read; begin with the dry run again.")
	}
	var errRate, errMost error
	o.PerSecond, errRate = strconv.Atoi(values.Get("per_second"))
	o.AtMost, errMost = strconv.ParseInt(values.Get("at_most"), 10, 64)
	switch {
	case !acceptable(o.Reason):
		return act.Act{}, errReason
	case errRate != nil || o.PerSecond < 1 || o.PerSecond > act.MaxPerSecond || errMost != nil || o.AtMost < 1:
		return act.Act{}, fault.New(fault.Invalid, "request_invalid", "Rows a second are 1 to %d, and rows in all 1 or more.", act.MaxPerSecond)
	case values.Get("key") == "":
		return act.Act{}, fault.New(fault.Malformed, "request_malformed", "The form has no key; begin with the dry run again.")
	}
	return f.order(r.Context(), o, values.Get("key"))
}

func (f *function) turnForm(r *http.Request) (act.Act, error) {
	in := &ActPath{r.PathValue("act_id")}
	do := map[string]func(context.Context, *ActPath) (*struct{ Body act.Act }, error){"stop": f.stop, "resume": f.resume}[r.PathValue("turn")]
	if do == nil {
		return act.Act{}, errPage
	}
	turned, err := do(r.Context(), in)
	if err != nil {
		return act.Act{}, err
	}
	return turned.Body, nil
}

// acceptable is what the API asks of a reason.
func acceptable(reason string) bool {
	return fn.Printable(reason) && utf8.RuneCountInString(reason) <= 500
}

var errReason = fault.New(fault.Invalid, "request_invalid", "Say why, in up to 500 characters: the reason is kept with the act.")

// exportForm answers with a link that holds the document, so that it is recorded once and
// kept nowhere.
func (f *function) exportForm(r *http.Request) (any, error) {
	if err := mayAct(r); err != nil {
		return nil, err
	}
	values, err := form(r)
	if err != nil {
		return nil, err
	}
	reason := strings.TrimSpace(values.Get("reason"))
	if !acceptable(reason) {
		return nil, errReason
	}
	document, err := f.exportOf(r.Context(), r.PathValue("user_id"), reason, uuid.NewString())
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(document, "", "  ")
	return map[string]any{
		"UserID": document.UserID, "ActID": document.ActID,
		"Address": template.URL("data:application/json;base64," + base64.StdEncoding.EncodeToString(text)), // base64, so no markup
	}, err
}
