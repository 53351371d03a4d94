// Package browser signs users in as they do it themselves: through the issuer's login
// page, with cookies and redirects. It works with the development issuer and with
// Keycloak, and it is for tests.
package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"
)

const (
	requestTimeout = 30 * time.Second // of one request with all its redirects
	maxRedirects   = 20
	maxPageBytes   = 1 << 20 // of HTML; the rest is left out
)

// ErrRefused means that the issuer showed its form again: the username or the
// password is wrong, or the account is locked after too many wrong ones.
var ErrRefused = errors.New("the sign-in was refused")

// Browser holds the cookies of one person. It can be used by several goroutines at
// once, like a browser with several tabs.
type Browser struct{ client *http.Client }

// New returns a browser without cookies. It talks to this machine only, and keeps no
// connections, so there is nothing to close.
func New() *Browser {
	// Like browsers, the jar trusts loopback as much as https: cookies that are marked
	// Secure, as Keycloak's are, come back to an http address there.
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err) // it has no reason to fail
	}
	return &Browser{&http.Client{
		Timeout:       requestTimeout,
		Jar:           jar,
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: Dial},
		CheckRedirect: checkRedirect,
	}}
}

// Client sends requests with the browser's cookies and collects new ones. It
// follows redirects within loopback.
func (b *Browser) Client() *http.Client { return b.client }

// SignIn opens startURL, which is the issuer's own or a client's that redirects to
// it, fills in the issuer's form, and follows all redirects until somebody other
// than the issuer has answered. That answer is returned; its body is to be closed.
//
// When no form is shown, because the issuer remembers the person or because
// startURL was refused, the answer is what was shown instead. A refused sign-in is
// ErrRefused. Whatever else the issuer shows after its form is an error.
func (b *Browser) SignIn(startURL, username, password string) (*http.Response, error) {
	asked, form, err := b.open(startURL)
	if err != nil || form == nil {
		return asked, err
	}
	action, err := asked.Request.URL.Parse(form.action)
	if err != nil {
		return nil, fmt.Errorf("the form's action: %w", err)
	}
	form.fields.Set("username", username)
	form.fields.Set("password", password)
	answer, again, err := page(b.client.PostForm(action.String(), form.fields))
	switch {
	case err != nil:
		return nil, err
	case origin(answer.Request.URL) != origin(asked.Request.URL):
		return answer, nil
	case again != nil:
		return nil, ErrRefused
	}
	return nil, fmt.Errorf("after the form the issuer answered %s at %s", answer.Status, answer.Request.URL.Path)
}

func (b *Browser) open(target string) (*http.Response, *loginForm, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, err
	}
	if !loopback(u) {
		return nil, nil, errNotLoopback(u)
	}
	return page(b.client.Get(target))
}

// page reads an answer that may show a form. The body can be read again.
func page(response *http.Response, err error) (*http.Response, *loginForm, error) {
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
		return response, nil, nil // it may be a stream that does not end
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPageBytes))
	response.Body.Close()
	if err != nil {
		return nil, nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, findLoginForm(string(body)), nil
}

func checkRedirect(next *http.Request, before []*http.Request) error {
	if !loopback(next.URL) {
		return errNotLoopback(next.URL)
	}
	if len(before) > maxRedirects {
		return errors.New("too many redirects")
	}
	return nil
}

// errNotLoopback keeps tests, and the passwords that they type, on this machine.
func errNotLoopback(u *url.URL) error {
	return fmt.Errorf("%s is not on this machine", origin(u))
}

func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") || ip != nil && ip.IsLoopback()
}

// Dial connects to an address. Names under .localhost are this machine, as in browsers.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if host, port, err := net.SplitHostPort(address); err == nil && strings.HasSuffix(host, ".localhost") {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }
