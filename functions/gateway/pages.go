package gateway

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
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// pages is the home page, which shows a person what there is to try, the page around the
// viewer of the API's description, and the page that a failed sign-in ends on.
//
//go:embed pages
var pages embed.FS

var refusedPage = template.Must(template.ParseFS(pages, "pages/refused.html"))

// pagePolicy lets pages load from this site only and run nothing inline.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const pageMaxAge = "public, max-age=300"

func (g *gateway) registerPages() {
	g.env.Mux.HandleFunc("GET /{$}", g.limited(file("home.html")))
	for _, name := range []string{"home.js", "home.css", "docs.js", "docs.css", "icon.svg"} {
		g.env.Mux.HandleFunc("GET /"+name, g.limited(file(name)))
	}
	for _, library := range []*assets.File{assets.Viewer(), assets.HTMX(), assets.UPlot(), assets.UPlotStyle()} {
		g.env.Mux.HandleFunc("GET "+library.Path, g.limited(library.ServeHTTP))
	}
	g.registerDocs()
}

// file serves one of the pages.
func file(name string) http.HandlerFunc {
	content, err := pages.ReadFile("pages/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return serve(name, content, pagePolicy)
}

func serve(name string, content []byte, policy string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		h.Set("Cache-Control", pageMaxAge)
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "same-origin")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	}
}

// refuseVisitor is refusePage for pages that need a session. Without one, the browser goes
// to sign-in and comes back. A script of such a page is answered that the whole page must
// be loaded again, which then does the same.
func (g *gateway) refuseVisitor(w http.ResponseWriter, r *http.Request, err error) {
	if fault.Of(err) != fault.Unauthenticated {
		g.refusePage(w, r, err)
		return
	}
	if r.Header.Get("HX-Request") == "true" {
		w.Header().Set("HX-Refresh", "true")
		g.refuse(w, r, err)
		return
	}
	if r.Method != http.MethodGet {
		g.refusePage(w, r, err)
		return
	}
	http.Redirect(w, r, loginPath+"?return_to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
}

// refusePage is refuse for addresses that people open: browsers get a page that says what
// to do, programs a problem.
func (g *gateway) refusePage(w http.ResponseWriter, r *http.Request, err error) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		g.refuse(w, r, err)
		return
	}
	p := problem.From(g.logged(r.Context(), err))
	h := w.Header()
	for name, values := range p.GetHeaders() {
		h[name] = values
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	w.WriteHeader(p.Status)
	_ = refusedPage.Execute(w, p) // the reader may be gone
}
