package gateway

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"

	"github.com/miniserversystem/miniserver/functions/internal/assets"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

//go:embed openapi.json
var openapi []byte

var docsPage = template.Must(template.ParseFS(pages, "pages/docs.html"))

// docsPolicy is pagePolicy for the viewer, which writes styles of its own and has pictures
// in them. It sends requests to this site only.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// registerDocs serves the description of the API, and a page with a viewer of it.
func (g *gateway) registerDocs() {
	document := bytes.ReplaceAll(openapi, []byte(fn.SessionCookie), []byte(g.cookies.prefix+sessionCookie))
	g.env.Mux.HandleFunc("GET /openapi.json", g.limited(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		w.Header().Set("Cache-Control", pageMaxAge)
		_, _ = w.Write(document) // the reader may be gone
	}))
	var page bytes.Buffer
	if err := docsPage.Execute(&page, assets.Viewer().Path); err != nil {
		panic(err) // it is embedded
	}
	g.env.Mux.HandleFunc("GET /docs", g.limited(serve("docs.html", page.Bytes(), docsPolicy)))
}
