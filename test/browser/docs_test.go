//go:build browser

package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/miniserversystem/miniserver/test/kit"
)

// docs is a tab at the API reference, with what its viewer asks for.
type docs struct {
	*tab
	mu   sync.Mutex
	sent []*network.Request
}

// openDocs makes a tab the API reference. Requests to other sites, and whatever the
// Content-Security-Policy stops, fail the test.
func openDocs(t *testing.T, s *site, b *tab, path string) *docs {
	t.Helper()
	d := &docs{tab: b}
	kit.Must(t, chromedp.Listen(b.context, func(event any) {
		e, ok := event.(*network.EventRequestWillBeSent)
		if !ok {
			return
		}
		if !strings.HasPrefix(e.Request.URL, s.origin+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			t.Errorf("the page asks for %s", e.Request.URL)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sent = append(d.sent, e.Request)
	}))
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: "window.stopped = []; document.addEventListener('securitypolicyviolation', (e) => stopped.push(e.violatedDirective + ' ' + e.blockedURI))",
		})
		return err
	}), chromedp.Navigate(s.origin+path))
	t.Cleanup(func() { d.nothingStopped() })
	return d
}

func (d *docs) nothingStopped() {
	stopped, err := chromedp.Run(d.context, chromedp.Evaluate[[]string]("window.stopped"))
	if err != nil || len(stopped) > 0 {
		d.t.Errorf("the Content-Security-Policy stopped %q, %v", stopped, err)
	}
}

// try opens the operation's client by the keyboard.
func (d *docs) try(operation string) {
	d.t.Helper()
	button := fmt.Sprintf("[...document.querySelectorAll('button')].find((e) => e.innerText.startsWith('Test Request') && e.innerText.includes(%q))", "("+operation+")")
	d.until(operation+" is there", button)
	d.do(chromedp.Evaluate[chromedp.Void](button+".focus()"), chromedp.KeyEvent(kb.Enter))
	d.until("the client is open", sendButton)
}

const sendButton = "[...document.querySelectorAll('button')].find((e) => e.checkVisibility() && e.innerText.startsWith('Send') && e.innerText.includes(' request to '))"

// send sends the request in the client, and waits for its status.
func (d *docs) send(status int) {
	d.t.Helper()
	d.click(sendButton)
	want := fmt.Sprintf("%d %s", status, http.StatusText(status))
	d.until("the answer is "+want, fmt.Sprintf("document.querySelector('[role=dialog]')?.innerText.includes(%q)", want))
}

// last returns the headers of the last request to an address that ends with path.
func (d *docs) last(path string) http.Header {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.sent) - 1; i >= 0; i-- {
		if strings.HasSuffix(d.sent[i].URL, path) {
			headers := http.Header{}
			for name, value := range d.sent[i].Headers {
				headers.Set(name, fmt.Sprint(value))
			}
			return headers
		}
	}
	d.t.Fatalf("nothing was sent to %s", path)
	return nil
}

// The API reference shows the operations and the codes of errors to everybody, in light and
// dark, on a phone too.
func TestBrowserDocs(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	d := openDocs(t, s, b, "/docs#mode_not_found")
	d.until("the code is shown", "document.activeElement.innerText.startsWith('mode_not_found')")
	d.until("the code is in view", "(({ top, bottom }) => top >= 0 && bottom <= innerHeight)(document.activeElement.getBoundingClientRect())")
	for _, text := range []string{"transfer", "entitlements", "Models"} {
		d.until("the list has "+text, fmt.Sprintf("[...document.querySelectorAll('nav, aside')].some((e) => e.innerText.includes(%q))", text))
	}
	for _, scheme := range []string{"light", "dark"} {
		d.scheme(scheme)
		for _, width := range []int64{1200, 360} {
			d.do(chromedp.EmulateViewport(width, 740), chromedp.Navigate("about:blank"), chromedp.Navigate(s.origin+"/docs#tag/gateway/GET/v1/me/overview"))
			d.until("the operation is there", shows("#reference", "Read the caller's account, entitlements"))
			d.until("it is "+scheme, fmt.Sprintf("document.body.classList.contains('%s-mode')", scheme))
			if !d.is(fmt.Sprintf("document.scrollingElement.scrollWidth <= %d", width)) {
				t.Errorf("%s, %d px: the page scrolls sideways", scheme, width)
			}
			d.photograph(fmt.Sprintf("docs-%s-%d.png", scheme, width))
			d.nothingStopped()
		}
	}
	d.try("get /v1/me/overview")
	d.send(http.StatusUnauthorized)
	if !d.is("document.scrollingElement.scrollWidth <= 360") {
		t.Error("the page with an answer scrolls sideways")
	}
	d.photograph("docs-answer-360.png")
}

// Requests sent from the API reference are those of the visitor's own session, writes
// too, unless they enter a token.
func TestBrowserDocsSession(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	b.signIn("alice")
	user := b.text("#user-id")
	b.do(chromedp.EmulateViewport(1200, 800))
	d := openDocs(t, s, b, "/docs#tag/gateway/GET/v1/me/overview")
	d.try("get /v1/me/overview")
	d.send(http.StatusOK)
	d.until("the answer is shown", fmt.Sprintf("document.querySelector('[role=dialog]').innerText.includes(%q)", user))
	d.photograph("docs-answer-1200.png")
	if got := d.last("/v1/me/overview").Get("Authorization"); got != "" {
		t.Errorf("Authorization %s is sent, and nobody entered a token", got)
	}

	d.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.origin+"/docs#tag/account/POST/v1/me"))
	d.try("post /v1/me")
	d.send(http.StatusOK)

	d.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.origin+"/docs#tag/transfer/POST/v1/accounts"))
	d.try("post /v1/accounts")
	d.click("[...document.querySelectorAll('[role=dialog] button')].find((e) => e.innerText.startsWith('4c5f6f0e'))") // the example
	d.click("[...document.querySelectorAll('[role=listbox] *, [role=option], button, li')].find((e) => e.innerText.trim() === 'Add value')")
	d.do(chromedp.KeyEvent("a key of my own" + kb.Enter))
	d.send(http.StatusForbidden) // alice is no operator
	if got := d.last("/v1/accounts").Get("Idempotency-Key"); got != "a key of my own" {
		t.Errorf("Idempotency-Key %s is sent, and another was entered", got)
	}
	d.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('[role=dialog] input[placeholder=Token]').focus()"), chromedp.KeyEvent("bad"))
	d.send(http.StatusUnauthorized)
	if got := d.last("/v1/accounts").Get("Authorization"); got != "Bearer bad" {
		t.Errorf("Authorization %s is sent, and a token was entered", got)
	}
}

// photograph saves what is visible of the page, which is long, among the test's artifacts.
func (d *docs) photograph(name string) {
	d.t.Helper()
	d.until("nothing moves", "document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getTiming().iterations === Infinity)")
	picture, err := chromedp.Run(d.context, chromedp.CaptureScreenshot())
	kit.Must(d.t, err)
	kit.Must(d.t, os.WriteFile(filepath.Join(d.t.ArtifactDir(), name), picture, 0o644))
}
