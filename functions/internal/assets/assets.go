// Package assets has the browser libraries that our pages use, each file exactly as its
// npm package has it, and serves them from this site. vendor.txt lists them; make vendored
// fetches them.
package assets

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// They are kept compressed: that is how nearly everybody gets them, and the program is
// smaller.
//
//go:embed vendor.txt */*.gz
var vendored embed.FS

// File is one file of a library, and the handler that serves it.
type File struct {
	// Path is where it is served. It has the version, so that what is there never changes.
	Path   string
	sha256 string
	zipped string // its name in vendored
	plain  func() []byte
}

// The files, which the gateway serves to all pages. They are looked up where they are
// first needed: most processes serve none.
var (
	Viewer     = open("api-reference", "standalone.js") // of OpenAPI documents
	HTMX       = open("htmx.org", "htmx.min.js")
	UPlot      = open("uplot", "uPlot.iife.min.js")
	UPlotStyle = open("uplot", "uPlot.min.css")
)

// entry is one line of vendor.txt.
type entry struct{ Package, Version, Licence, Integrity, Path, SHA256 string }

var entries = sync.OnceValue(func() (all []entry) {
	for line := range strings.Lines(string(content("vendor.txt"))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if f := strings.Fields(line); len(f) == 6 {
			all = append(all, entry{f[0], f[1], f[2], f[3], f[4], f[5]})
		}
	}
	return all
})

func open(library, name string) func() *File {
	return sync.OnceValue(func() *File {
		for _, e := range entries() {
			if path.Base(e.Package) != library || path.Base(e.Path) != name {
				continue
			}
			zipped := library + "/" + name + ".gz"
			return &File{
				Path: "/assets/" + library + "-" + e.Version + "/" + name, sha256: e.SHA256,
				zipped: zipped, plain: sync.OnceValue(func() []byte { return unzipped(content(zipped)) }),
			}
		}
		panic(library + " " + name + " is not in vendor.txt")
	})
}

func content(name string) []byte {
	content, err := vendored.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return content
}

func unzipped(zipped []byte) []byte {
	reader, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		panic(err) // a test reads every file
	}
	plain, err := io.ReadAll(reader)
	if err != nil {
		panic(err)
	}
	return plain
}

// ServeHTTP serves the file, compressed if the client accepts that. Clients may cache it
// for good.
func (f *File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(f.Path)))
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if takesGzip(r) {
		h.Set("Content-Encoding", "gzip")
		h.Set("ETag", `"`+f.sha256+`.gz"`)
		zipped, err := vendored.Open(f.zipped)
		if err != nil {
			panic(err) // it is embedded
		}
		http.ServeContent(w, r, "", time.Time{}, zipped.(io.ReadSeeker)) // as embed promises
		return
	}
	h.Set("ETag", `"`+f.sha256+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.plain()))
}

// takesGzip reports whether Accept-Encoding names gzip with a weight above 0 (RFC 9110,
// 12.5.3). Everybody takes the plain file.
func takesGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, weighted := strings.Cut(coding, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		if !weighted {
			return true
		}
		_, q, _ := strings.Cut(weight, "=")
		value, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return err == nil && value > 0
	}
	return false
}
