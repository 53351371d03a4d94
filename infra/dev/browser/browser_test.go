package browser_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := proc.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Listener.Close()
	server.Listener = listen(t)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// client stands for the gateway: / redirects to the issuer, which sends people back
// to /login/callback; that redirects to /home.
func client(t *testing.T) (start string) {
	t.Helper()
	var config oauth2.Config
	own := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			http.Redirect(w, r, config.AuthCodeURL("a", oauth2.S256ChallengeOption(oauth2.GenerateVerifier())), http.StatusFound)
		case "/login/callback":
			http.SetCookie(w, &http.Cookie{Name: "code", Value: r.FormValue("code"), Path: "/", Secure: true, HttpOnly: true})
			http.Redirect(w, r, "/home", http.StatusFound)
		case "/home":
			code, err := r.Cookie("code")
			if err != nil || code.Value == "" {
				http.Error(w, "nobody", http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(w, "home")
		}
	})
	server, err := issuer.Start(t.Context(), listen(t), issuer.Options{RedirectURIs: []string{own + "/login/callback"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	config = oauth2.Config{
		ClientID: issuer.WebClientID, RedirectURL: own + "/login/callback", Scopes: []string{"openid"},
		Endpoint: oauth2.Endpoint{AuthURL: server.URL() + "/authorize"},
	}
	return own + "/"
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	start := client(t)
	b := browser.New()
	answer, err := b.SignIn(start, "alice", "alice")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || string(body) != "home" || answer.Request.URL.Path != "/home" {
		t.Errorf("ended at %s: %s %q, %v; want 200 \"home\" at /home", answer.Request.URL, answer.Status, body, err)
	}
	// The browser sends the cookie back, although it is Secure.
	again, err := b.Client().Get(start + "home")
	if err != nil {
		t.Fatal(err)
	}
	again.Body.Close()
	if again.StatusCode != http.StatusOK {
		t.Errorf("the second visit: %s, want 200", again.Status)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	start := client(t)
	for name, password := range map[string]string{"alice": "bob", "nobody": "nobody", "bob": ""} {
		if _, err := browser.New().SignIn(start, name, password); !errors.Is(err, browser.ErrRefused) {
			t.Errorf("%s with %q: %v, want ErrRefused", name, password, err)
		}
	}
}

func TestNoForm(t *testing.T) {
	t.Parallel()
	start := client(t)
	answer, err := browser.New().SignIn(start+"home", "alice", "alice")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusUnauthorized || strings.TrimSpace(string(body)) != "nobody" {
		t.Errorf("answered %s %q, want 401 \"nobody\"", answer.Status, body)
	}
}

// A page with everything in Keycloak's that a naive parser trips over.
func TestFormOfOtherMakers(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.RawQuery) })
	page := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			values := url.Values{}
			for _, name := range []string{"username", "password", "hidden", "a"} {
				values.Set(name, r.FormValue(name))
			}
			values.Set("query", r.URL.Query().Get("b"))
			http.Redirect(w, r, elsewhere+"?"+values.Encode(), http.StatusSeeOther)
			return
		}
		w.Header().Set("Content-Type", "text/html;charset=utf-8")
		_, _ = io.WriteString(w, `<form action="/search"><input type="text" name="q"></form>
			<FORM id='f' onsubmit="return 1 > 0;" action="?a=1&amp;b=2" method=post>
			<input name="username" value="" type="text" autofocus
			/><input type=password name=password><input type="hidden" name="hidden" value="&lt;x&gt;" />
			<input type="submit" name="a" value="no"></FORM>`)
	})
	answer, err := browser.New().SignIn(page+"/in", "al&ice", "p=w")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	got, err := url.ParseQuery(string(body))
	want := url.Values{"username": {"al&ice"}, "password": {"p=w"}, "hidden": {"<x>"}, "a": {"1"}, "query": {"2"}}
	if err != nil || got.Encode() != want.Encode() {
		t.Errorf("posted %v, %v", got, err)
	}
}

func TestStaysOnThisMachine(t *testing.T) {
	t.Parallel()
	away := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://login.example.test/", http.StatusFound)
	})
	for _, target := range []string{away, "http://login.example.test/", "http://192.0.2.1/"} {
		if _, err := browser.New().SignIn(target, "alice", "alice"); err == nil || !strings.Contains(err.Error(), "not on this machine") {
			t.Errorf("%s: %v, want an error that it is not on this machine", target, err)
		}
	}
}

func TestRedirectLoopEnds(t *testing.T) {
	t.Parallel()
	loop := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) })
	if _, err := browser.New().SignIn(loop, "alice", "alice"); err == nil || !strings.Contains(err.Error(), "too many redirects") {
		t.Errorf("it ended with %v, want too many redirects", err)
	}
}
