package console

import (
	"bytes"
	"embed"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/functions/internal/assets"
	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

//go:embed pages
var files embed.FS

// parse returns the pages, each with layout.html around it, and the fragments that replace
// a part of one.
func parse() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"ago": ago, "when": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }, "ms": ms, "rate": rate,
		"shown": shown, "which": which, "segment": url.PathEscape, "everything": func() int64 { return everything }, "htmx": func() string { return assets.HTMX().Path },
		"uplot": func() string { return assets.UPlot().Path }, "uplotStyle": func() string { return assets.UPlotStyle().Path },
	}).ParseFS(files, "pages/*.html"))
}

// pagePolicy lets pages load from this site only and run nothing inline: what is shown here
// was written by others.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// view is what layout.html needs, and the page's own data.
type view struct {
	Title, Nav string
	Acts       bool // the caller may act
	Data       any
}

// pages are served below /console.
func (f *function) pages() http.Handler {
	f.templates = parse()
	mux := http.NewServeMux()
	show := func(pattern, name, title, nav string, data func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			got, err := data(r)
			if err != nil {
				f.failed(w, r, err)
				return
			}
			v := view{Title: title, Nav: nav, Data: got}
			if its, ok := got.(titled); ok {
				v.Title = its.title()
			}
			f.render(w, r, http.StatusOK, name, v)
		})
	}
	show("GET /console", "now", "Now", "now", f.nowPage)
	show("GET /console/flow", "flow", "", "", f.nowPage)
	show("GET /console/queues/{queue}", "queue", "Stuck", "queue", f.queuePage)
	show("POST /console/queues/{queue}/dry-run", "dry-run", "", "", f.dryRunForm)
	show("GET /console/acts", "acts", "Acts", "acts", f.actsPage)
	show("GET /console/acts/{act_id}", "act", "Act", "acts", f.actPage)
	show("GET /console/acts/{act_id}/progress", "progress", "", "", f.actPage)
	show("GET /console/people", "people", "People", "people", f.peoplePage)
	show("GET /console/people/{user_id}", "person", "Person", "people", f.personPage)
	show("GET /console/people/{user_id}/items/{sku}", "history", "History", "people", f.historyPage)
	show("GET /console/money", "money", "Money", "money", f.moneyPage)
	show("GET /console/settings", "settings", "Settings", "settings", func(*http.Request) (any, error) { return f.configuration(), nil })
	show("POST /console/people/{user_id}/export", "export", "", "", f.exportForm)
	mux.HandleFunc("POST /console/acts", f.acting(f.beginForm))
	mux.HandleFunc("POST /console/acts/{act_id}/{turn}", f.acting(f.turnForm))
	mux.HandleFunc("GET /console/assets/{file}", f.asset)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { f.failed(w, r, errPage) })
	return mux
}

type titled interface{ title() string }

var errPage = fault.New(fault.NotFound, "route_not_found", "There is no such page.")

func (f *function) render(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	v.Acts = auth.From(r.Context()).Has(actors...)
	var out bytes.Buffer
	if err := f.templates.ExecuteTemplate(&out, name, v); err != nil {
		problem.Write(w, err)
		f.env.Logger().ErrorContext(r.Context(), "request failed", "status", http.StatusInternalServerError, "error", err.Error())
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the reader may be gone
}

// failed shows what is wrong and what to do: as a page, or, where a script asked for a
// fragment, in its place.
func (f *function) failed(w http.ResponseWriter, r *http.Request, err error) {
	p := problem.From(err)
	if p.Status >= http.StatusInternalServerError {
		f.env.Logger().ErrorContext(r.Context(), "request failed", "status", p.Status, "error", err.Error())
	}
	name := "refused"
	if isFragment(r) {
		name = "refusal"
	}
	f.render(w, r, p.Status, name, view{Title: "That did not work", Data: p})
}

// isFragment reports whether a script asks. The gateway passes no header of htmx on, so
// paths say it: forms and what is below a page are asked for by scripts.
func isFragment(r *http.Request) bool {
	return r.Method == http.MethodPost || strings.HasSuffix(r.URL.Path, "/progress") || r.URL.Path == "/console/flow"
}

func (f *function) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	content, err := files.ReadFile("pages/" + name)
	if err != nil || path.Ext(name) == ".html" {
		f.failed(w, r, errPage)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "private, max-age=300")
	_, _ = w.Write(content) // the reader may be gone
}

// queueData is the page of a queue.
type queueData struct {
	Queue   string
	Kinds   []string
	Filter  Filter
	From    string // the filter's times as they were typed
	Before  string
	Failed  []lease.FailedRow
	Letters any
	Next    string // the address of the next page
	Others  []string
	Rows    bool // it has rows, which have owners
}

func (q queueData) title() string { return "Stuck in " + q.Queue }

// Filtered reports whether there is a filter.
func (q queueData) Filtered() bool { return q.Filter != Filter{} }

const pageRows = 20

func (f *function) queuePage(r *http.Request) (any, error) {
	query := r.URL.Query()
	filter, err := filterOf(query)
	if err != nil {
		return nil, err
	}
	q, err := f.queue(r.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	data := queueData{
		Queue: q.name, Kinds: q.kinds, Filter: filter, From: query.Get("failed_from"), Before: query.Get("failed_before"),
		Rows: q.hasRows(),
	}
	for _, other := range f.queues {
		if other.hasRows() || other.hasLetters() {
			data.Others = append(data.Others, other.name)
		}
	}
	var next string
	switch {
	case q.hasRows():
		data.Failed, next, err = q.table.List(r.Context(), filter.filter(), query.Get("cursor"), pageRows)
	case q.hasLetters():
		data.Letters, next, err = q.box.List(r.Context(), filter.filter(), query.Get("cursor"), pageRows)
	default:
		err = errQueue
	}
	if next != "" {
		query.Set("cursor", next)
		data.Next = "?" + query.Encode()
	}
	return data, err
}

type actsData struct {
	Acts []act.Act
	Next string
}

func (f *function) actsPage(r *http.Request) (any, error) {
	list, next, err := f.acts(r.Context(), r.URL.Query().Get("cursor"), pageRows)
	return actsData{list, next}, err
}

func (f *function) actPage(r *http.Request) (any, error) {
	found, err := f.getAct(r.Context(), &ActPath{r.PathValue("act_id")})
	if err != nil {
		return nil, err
	}
	return found.Body, nil
}

func (f *function) peoplePage(r *http.Request) (any, error) {
	if wanted := strings.TrimSpace(r.URL.Query().Get("user_id")); wanted != "" {
		return f.person(r.Context(), wanted), nil
	}
	return nil, nil
}

func (f *function) personPage(r *http.Request) (any, error) {
	return f.person(r.Context(), r.PathValue("user_id")), nil
}

func (p person) title() string { return p.UserID }

func (f *function) historyPage(r *http.Request) (any, error) {
	list, _, err := f.entitlements.History(r.Context(), r.PathValue("user_id"), r.PathValue("sku"), "", 100)
	return map[string]any{"UserID": r.PathValue("user_id"), "SKU": r.PathValue("sku"), "Changes": list}, err
}

func (f *function) moneyPage(r *http.Request) (any, error) {
	return f.transfers.CheckBalances(r.Context(), r.URL.Query().Get("cursor"), 100)
}
