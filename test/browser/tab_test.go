//go:build browser

package browser_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/miniserversystem/miniserver/test/kit"
)

// tab is one tab of a browser.
type tab struct {
	t       testing.TB
	context context.Context
	origin  string
}

// browse opens the start page in a browser without cookies.
func (s *site) browse(t testing.TB) *tab {
	t.Helper()
	path, err := chromium()
	kit.Must(t, err)
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir())}
	for _, flag := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	return s.open(t, allocator)
}

// open opens the start page in another tab of parent's browser. Any complaint of the
// browser about it fails the test, unless it is expected.
func (s *site) open(t testing.TB, parent context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, options...)
	t.Cleanup(cancel)
	kit.Must(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("exception: %+v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			if e.Type != runtime.ConsoleAPICalledTypeInfo { // the API reference says its version
				t.Errorf("console: %+v", e)
			}
		case *log.EventEntryAdded:
			if !s.expected(e.Entry) {
				t.Errorf("log: %s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
			}
		}
	}))
	b := &tab{t, ctx, s.origin}
	b.do(chromedp.Navigate(s.origin + "/"))
	return b
}

// expected reports whether a complaint is about an answer that the page has to accept:
// only a request shows that nobody is signed in, and a stream breaks off when its session
// ends.
func (s *site) expected(e *log.Entry) bool {
	if e.Source != log.EntrySourceNetwork {
		return false
	}
	for _, fails := range s.fails {
		if strings.HasSuffix(e.URL, fails) && strings.Contains(e.Text, " 503 ") {
			return true
		}
	}
	switch {
	case strings.HasSuffix(e.URL, refusedPath):
		return strings.Contains(e.Text, " 400 ")
	case strings.Contains(e.URL, "/v1/me/notifications/stream") && strings.Contains(e.Text, "ERR_INCOMPLETE_CHUNKED_ENCODING"):
		return true
	}
	if s.shopless && strings.Contains(e.Text, " 404 ") && strings.Contains(e.URL, "/demo/") {
		return true // only make run has one
	}
	if strings.Contains(e.Text, " 404 ") && (strings.HasSuffix(e.URL, "/console") || strings.HasSuffix(e.URL, "/nowhere")) {
		return true // players find no console
	}
	if strings.HasSuffix(e.URL, "/v1/accounts") && strings.Contains(e.Text, " 403 ") {
		return true // only operators open accounts, and the API reference lets everybody try
	}
	return (strings.Contains(e.URL, "/v1/me") || strings.Contains(e.URL, "/v1/accounts") || strings.HasSuffix(e.URL, "/console/flow")) && strings.Contains(e.Text, " 401 ")
}

// refusedPath leads to the page of a failed sign-in.
const refusedPath = "/login?return_to=elsewhere"

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.context, browserPatience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page says: %s", err, b.text("body"))
	}
}

// is reports whether a JavaScript expression is true. While the page is loading, none is.
func (b *tab) is(expression string) bool {
	ctx, cancel := context.WithTimeout(b.context, browserPatience)
	defer cancel()
	yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
	return err == nil && yes
}

func (b *tab) until(what, expression string) {
	b.t.Helper()
	if !kit.Soon(func() bool { return b.is(expression) }) {
		b.t.Fatalf("not within %s: %s; the page says: %s", kit.Patience, what, b.text("body"))
	}
}

func (b *tab) text(selector string) string {
	text, _ := chromedp.Run(b.context, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector)))
	return text
}

// JavaScript expressions about what is visible.
const (
	signedIn  = "document.querySelector('#user-id')?.checkVisibility() && document.querySelector('#user-id').innerText.startsWith('u_')"
	signedOut = "document.querySelector('#sign-in')?.checkVisibility()"
	isLive    = "document.querySelector('#live')?.innerText === 'Live'"
)

func shows(selector, text string) string {
	return fmt.Sprintf("[document.querySelector(%q)].some(e => e?.checkVisibility() && e.innerText.includes(%q))", selector, text)
}

// rowButton is the button in the list's row that contains text.
func rowButton(list, text string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%q)].find(row => row.innerText.includes(%q))?.querySelector('button')", list+" > li", text)
}

func (b *tab) click(element string) {
	b.t.Helper()
	b.until(element+" is there", element+"?.checkVisibility()")
	b.do(chromedp.Evaluate[chromedp.Void](element + ".click()"))
}

// front brings a tab to the front of its window.
func (b *tab) front() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.BringToFront, cdp.Empty{})
		return err
	}))
}

// atIssuer fills in the issuer's form.
func (b *tab) atIssuer(name string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.ID("username"), name), chromedp.SendKeys(chromedp.ID("password"), name+kb.Enter))
}

func (b *tab) signIn(name string) {
	b.t.Helper()
	b.click("document.querySelector('#sign-in')")
	b.until("the issuer's form is ready", "document.activeElement?.id === 'username'")
	b.atIssuer(name)
	b.until(name+" is signed in", signedIn+" && "+isLive)
}

// tabTo presses Tab until an element whose text or label begins with name has the focus,
// and checks that every stop on the way shows its focus.
func (b *tab) tabTo(name string) {
	b.t.Helper()
	var passed []string
	for range 60 { // a field of date and time has seven stops
		b.do(chromedp.KeyEvent(kb.Tab))
		at, err := chromedp.Run(b.context, chromedp.Evaluate[string]("(document.activeElement.innerText || document.activeElement.labels?.[0]?.innerText || '').replace(/\\s+/g, ' ').trim()"))
		kit.Must(b.t, err)
		passed = append(passed, at)
		if !b.is("getComputedStyle(document.activeElement).outlineStyle !== 'none'") {
			b.t.Errorf("the focus on %q is not visible", at)
		}
		if strings.HasPrefix(at, name) {
			return
		}
	}
	b.t.Fatalf("Tab does not lead to %q, but to %q", name, passed)
}
