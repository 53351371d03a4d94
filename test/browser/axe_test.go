//go:build browser

package browser_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/miniserversystem/miniserver/test/kit"
)

// axe-core is as its npm package has it; make vendored fetches it.
var (
	//go:embed axe-core/axe.min.js.gz
	axeZipped []byte
	//go:embed vendor.txt
	vendored string
)

// axe is the library's script.
var axe = sync.OnceValues(func() (string, error) {
	reader, err := gzip.NewReader(bytes.NewReader(axeZipped))
	if err != nil {
		return "", err
	}
	script, err := io.ReadAll(reader)
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(script); !strings.Contains(vendored, " axe.min.js "+hex.EncodeToString(sum[:])+"\n") {
		return "", errors.New("axe.min.js is not the one in vendor.txt")
	}
	return string(script), nil
})

// violations has axe-core judge the page by WCAG 2.2 A and AA and by what its authors hold
// to be good practice. The script comes through the DevTools protocol: the pages' policy
// lets no other in.
const violations = `axe.run(%s, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] })
	.then(({ violations, passes }) => passes.length === 0 ? ["axe-core found nothing to judge"] :
		violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + v.help + " " + n.target.join(" ") + " " + n.html.slice(0, 200) + " " + n.any.map((c) => c.message).join("; "))))`

// accessible fails the test for whatever axe-core finds in a part of the page, at both
// widths, in light and dark.
func (b *tab) accessible(where, part string) {
	b.t.Helper()
	script, err := axe()
	kit.Must(b.t, err)
	b.do(chromedp.Evaluate[chromedp.Void](script))
	if b.is("document.querySelector('form form')") {
		b.t.Errorf("%s: there is a form within a form, and both would be sent", where)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, width := range []int64{1280, 360} {
			b.do(chromedp.EmulateViewport(width, 800))
			found, err := chromedp.Run(b.context, chromedp.Evaluate[[]string](fmt.Sprintf(violations, part), chromedp.EvalAwaitPromise))
			kit.Must(b.t, err)
			for _, violation := range found {
				b.t.Errorf("%s, %s, %d px: %s", where, scheme, width, violation)
			}
			if !b.is(fmt.Sprintf("document.scrollingElement.scrollWidth <= %d", width)) {
				b.t.Errorf("%s, %d px: the page scrolls sideways", where, width)
			}
			b.shoot(fmt.Sprintf("%s-%s-%d.png", strings.ReplaceAll(strings.Trim(where, "/"), "/", "-"), scheme, width))
		}
	}
}

// axe-core finds nothing to mend on the start page, signed out and in, nor around the viewer
// of the API reference.
func TestBrowserAccessible(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	b.until("the start page is there", signedOut)
	b.accessible("signed-out", "document")
	b.signIn("olga")
	b.click(rowButton("#goods", "Oaken Shield"))
	b.until("a notification shows", shows("#inbox", "Oaken Shield is yours"))
	b.click("document.querySelector('#join-queue')")
	b.until("the ticket shows", shows("#tickets", "QUEUED"))
	b.accessible("signed-in", "document")
	b.do(chromedp.Navigate(s.origin + refusedPath))
	b.accessible("refused", "document")
	b.do(chromedp.Navigate(s.origin + "/docs"))
	b.until("the viewer is there", "document.querySelector('#reference h1')")
	// The viewer's own parts have greys of a contrast of 3.2 to 4.4, small switches in its list,
	// and a region that scrolls and takes no focus.
	b.accessible("docs", `{ exclude: ["#reference"] }`)
}

// Nor on any page of the console.
func TestBrowserConsoleAccessible(t *testing.T) {
	t.Parallel()
	s, r := setupDesk(t)
	paths := s.stuck(r)
	b := s.atConsole(t, "olga", "/console")
	for _, path := range paths {
		b.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(s.origin+path))
		b.until("the page's script is there", "window.htmx")
		if path == "/console" {
			b.until("the plots are drawn", "document.querySelectorAll('.uplot').length === 6")
		}
		b.do(chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('details').forEach((e) => { e.open = true })"))
		for _, form := range []string{"Dry run: requeue", "Dry run: discard", "Dry run: erase"} {
			if b.is(button(form)) {
				b.click(button(form))
				b.until("the dry run is there", shows("main", "Nothing fits now.")+" || "+shows("main", "would be changed"))
			}
		}
		b.accessible(path, "document")
	}
}
