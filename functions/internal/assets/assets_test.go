package assets

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every vendored file is the one that vendor.txt names, each library has its licence, and
// nothing else is there.
func TestVendored(t *testing.T) {
	t.Parallel()
	var listed []string
	for _, e := range entries() {
		name := filepath.Join(path.Base(e.Package), path.Base(e.Path)+".gz")
		listed = append(listed, name)
		zipped, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(unzipped(zipped)); hex.EncodeToString(sum[:]) != e.SHA256 {
			t.Errorf("%s of %s %s has the SHA-256 %x, want %s", e.Path, e.Package, e.Version, sum, e.SHA256)
		}
		if !strings.HasPrefix(e.Integrity, "sha512-") {
			t.Errorf("%s has the integrity %s", e.Package, e.Integrity)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(name), "LICENSE")); err != nil {
			t.Error(err)
		}
	}
	found, err := filepath.Glob("*/*.gz")
	if slices.Sort(listed); err != nil || !slices.Equal(found, listed) {
		t.Errorf("there are %q, %v, and listed are %q", found, err, listed)
	}
}

func get(f *File, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, f.Path, nil)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// Clients get the file compressed only if they take it so, and keep it for good.
func TestServe(t *testing.T) {
	t.Parallel()
	for accepted, zipped := range map[string]bool{
		"": false, "gzip": true, "GZip": true, "br, gzip;q=0.8": true, "gzip; q=0.8": true, "gzip;q=0": false, "gzip; q=0.000": false,
		"gzip;q=x": false, "br": false, "x-gzip": false, "*": false, "identity": false,
	} {
		w := get(HTMX(), "Accept-Encoding: "+accepted)
		body := w.Body.Bytes()
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zipped {
			t.Errorf("Accept-Encoding %q: compressed %t, want %t", accepted, got, zipped)
			continue
		}
		if zipped {
			body = unzipped(body)
		}
		if w.Code != http.StatusOK || !bytes.HasPrefix(body, []byte("var htmx=")) {
			t.Errorf("Accept-Encoding %q: %d %.40q", accepted, w.Code, body)
		}
		h := w.Header()
		if h.Get("Cache-Control") != "public, max-age=31536000, immutable" || h.Get("Vary") != "Accept-Encoding" || h.Get("Content-Type") != "text/javascript; charset=utf-8" {
			t.Errorf("Accept-Encoding %q: headers %v", accepted, h)
		}
		again := get(HTMX(), "Accept-Encoding: "+accepted, "If-None-Match: "+h.Get("ETag"))
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("Accept-Encoding %q, with its ETag: %d with %d bytes, want 304", accepted, again.Code, again.Body.Len())
		}
	}
	// A cache must not take one form for the other.
	if plain, zipped := get(HTMX()).Header().Get("ETag"), get(HTMX(), "Accept-Encoding: gzip").Header().Get("ETag"); plain == zipped || plain == "" {
		t.Errorf("ETag %s for both forms", plain)
	}
	if got := get(UPlotStyle()).Header().Get("Content-Type"); got != "text/css; charset=utf-8" {
		t.Errorf("a style sheet is %q", got)
	}
}
