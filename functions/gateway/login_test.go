package gateway

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// asBrowsersRead is what a browser follows where it reads address in a Location: it drops
// what is around it, tabs and line breaks, and takes a backslash for a slash (WHATWG URL).
var asBrowsersRead = strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/")

// Wherever a sign-in leads afterwards, it is on this site.
func FuzzReturnTo(f *testing.F) {
	for _, path := range []string{"/", "/shop?item=1#top", "//evil.example", "//", "//?a", "///evil.example", `/\evil.example`, "/\t/evil.example", "/%2fevil.example", "/..//evil.example", "https:/evil.example", "/%5cevil.example", "/a\r\nSet-Cookie: a=b", "/é", "/%", "/?//evil.example"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		r := httptest.NewRequest("GET", "/login?return_to="+url.QueryEscape(path), nil)
		to, err := returnTo(r)
		if err != nil {
			if fault.Of(err) != fault.Malformed {
				t.Errorf("%q: %v", path, err)
			}
			return
		}
		w := httptest.NewRecorder()
		seeOther(w, to)
		read := asBrowsersRead.Replace(strings.TrimFunc(w.Header().Get("Location"), func(c rune) bool { return c <= ' ' }))
		if to != path || !strings.HasPrefix(read, "/") || strings.HasPrefix(read, "//") {
			t.Errorf("%q leads to %q, which browsers read as %q", path, to, read)
		}
	})
}
