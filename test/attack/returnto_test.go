package attack_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// No sign-in ends outside this site.
func TestAttackReturnTo(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	long := "/" + strings.Repeat("x", 3<<10)
	for name, path := range map[string]string{
		"two slashes": "//evil.example", "three slashes": "///evil.example", "slash and backslash": `/\evil.example`,
		"two backslashes": `\\evil.example`, "backslash and slash": `\/evil.example`, "backslash later": `/x\y`,
		"escaped slashes": "/%2f%2fevil.example", "one escaped slash": "/%2Fevil.example", "escaped backslash": "/%5cevil.example",
		"https": "https://evil.example", "https of this host": s.URL + "/docs", "no scheme, a host": "evil.example",
		"one slash after the scheme": "https:/evil.example", "javascript": "javascript:alert(1)", "data": "data:text/html,x",
		"user and host": "user@evil.example", "slashes, user and host": "//user@evil.example", "this host as the user": "//" + s.URL[len("http://"):] + "@evil.example",
		"tab": "/\t/evil.example", "escaped tab": "/%09/evil.example", "CR LF": "/\r\nSet-Cookie: a=b", "escaped CR LF": "/%0d%0aSet-Cookie:%20a=b",
		"line feed": "/\n/evil.example", "DEL": "/\x7f", "escape": "/\x1b[31m", "space first": " /docs", "tab first": "\t//evil.example",
		"empty": "", "a relative path": "docs", "a dot": "./docs", "only a query": "?x=1", "only a fragment": "#x", "3 kB": long,
		"a broken escape": "/%zz",
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			for _, query := range []string{url.QueryEscape(path), "/docs&return_to=" + url.QueryEscape(path), url.QueryEscape(path) + "&return_to=/docs"} {
				v := s.Visitor()
				a := v.Do(http.MethodGet, "/login?return_to="+query, "")
				system.WantProblem(t, a, http.StatusBadRequest, "return_to_invalid")
				if a.Header.Get("Location") != "" || len(v.Cookies) > 0 || a.Header.Get("A") != "" {
					t.Errorf("headers %v, want no Location and no cookie", a.Header)
				}
			}
			linked := s.Call(http.MethodPost, "/login/link?return_to="+url.QueryEscape(path), i.Fresh(t, name, nil), "")
			system.WantProblem(t, linked, http.StatusBadRequest, "return_to_invalid")
		})
	}
	t.Run("twice the same", func(t *testing.T) {
		a := s.In(t).Visitor().Do(http.MethodGet, "/login?return_to=/docs&return_to=/docs", "")
		system.WantProblem(t, a, http.StatusBadRequest, "return_to_invalid")
	})
	t.Run("not UTF-8, or NUL", func(t *testing.T) {
		for _, path := range []string{"/%ff", "/%00", "/x%C0%AF"} {
			system.WantProblem(t, s.In(t).Visitor().Do(http.MethodGet, "/login?return_to="+path, ""), http.StatusBadRequest, "url_invalid")
		}
	})
}

// Every return_to that is accepted leads to this site, whatever it looks like.
func TestAttackReturnToThatIsTaken(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	s := system.StartAt(t, i)
	site, err := url.Parse(s.URL)
	kit.Must(t, err)
	for path, want := range map[string]string{
		"/": "/", "/docs": "/docs", "/shop?item=1": "/shop?item=1", "/docs?from=here&x=%2F%2Fevil.example#part": "/docs?from=here&x=%2F%2Fevil.example#part",
		"/docs#part": "/docs#part", "/?next=//evil.example": "/?next=//evil.example", "/日本": "",
		// For these, it only matters that they stay on the site.
		"/.//evil.example": "", "/x/..//evil.example": "", "/x/../..//evil.example": "", "/%2e%2e//evil.example": "", "/%2e/%2fevil.example": "",
		"/..;//evil.example": "", "/@evil.example": "", "/:80//evil.example": "", "/%252f%252fevil.example": "", "/%255cevil.example": "",
		"/#//evil.example": "", "/ /evil.example": "", "/\u00a0/evil.example": "", "/\u2028/evil.example": "", "/\uff0fevil.example": "",
		"/?\u0085": "", "/x?a=%0d%0aSet-Cookie:%20a=b": "", "/x#%0d%0a": "", "/javascript:alert(1)": "", "/" + strings.Repeat("x", 2000): "",
	} {
		t.Run(path[:min(len(path), 40)], func(t *testing.T) {
			v := s.In(t).Visitor()
			where := v.SignIn(i, path, system.SigningIn{Subject: "alice"})
			if want != "" && where != want {
				t.Errorf("led to %q, want %q", where, want)
			}
			// Browsers drop tabs and line breaks, and read a backslash as a slash.
			if strings.ContainsAny(where, "\t\r\n\\") {
				t.Errorf("led to %q", where)
			}
			end, err := site.Parse(where)
			kit.Must(t, err)
			if end.Scheme != site.Scheme || end.Host != site.Host || end.User != nil || strings.HasPrefix(where, "//") {
				t.Errorf("%q leaves the site", where)
			}
			if v.Cookie("a") != "" {
				t.Error("the path set a cookie")
			}
		})
	}
}
