//go:build browser

package browser_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// The page fits a screen 320 px wide, signed out and in, with long texts, and is readable
// in light and dark.
func TestBrowserLook(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	narrow := func(where string) {
		b.do(chromedp.EmulateViewport(320, 640))
		if !b.is("document.scrollingElement.scrollWidth <= 320") {
			t.Errorf("%s: the page scrolls sideways", where)
			b.shoot("wide.png")
		}
	}
	b.until("the page is there", signedOut+" && "+shows("#hint", "alice"))
	narrow("signed out")
	b.shoot("signed-out-320.png")
	b.do(chromedp.EmulateViewport(1200, 800))
	b.shoot("signed-out-1200.png")

	b.signIn("alice")
	b.click(rowButton("#goods", "Oaken Shield"))
	b.until("the notification shows", shows("#inbox", "Oaken Shield is yours"))
	b.click(rowButton("#owned", "Oaken Shield"))
	b.until("the notification shows", shows("#inbox", "no longer yours"))
	b.click(rowButton("#inbox", "Oaken Shield is yours"))
	b.click(rowButton("#inbox", "Oaken Shield is no longer yours"))
	b.click(rowButton("#goods", "Sword of Dawn"))
	b.until("the notification shows", shows("#inbox", "Sword of Dawn is yours"))
	b.click("document.querySelector('#open-account')")
	b.until("the notification shows", shows("#inbox", "was opened with 100 EUR"))
	b.until("nothing is in the way", "document.querySelector('#message-text').innerText === ''")
	b.do(chromedp.EmulateViewport(1200, 760))
	b.shoot("screenshot.png")
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		if faint, err := chromedp.Run(b.context, chromedp.Evaluate[[]string](faintText)); err != nil || len(faint) > 0 {
			t.Errorf("%s: too little contrast: %q %v", scheme, faint, err)
		}
		b.shoot(scheme + "-1200.png")
		b.do(chromedp.EmulateViewport(360, 1100))
		b.shoot(scheme + "-360.png")
		b.do(chromedp.EmulateViewport(1200, 760))
	}
	user := b.text("#user-id")
	system.WantStatus(t, s.Grant("k1", user, strings.Repeat("long", 32)), http.StatusOK)
	b.until("the notification shows", shows("#inbox", "longlong"))
	narrow("signed in")
	b.shoot("signed-in-320.png")
	for _, path := range []string{"/docs", refusedPath} {
		b.do(chromedp.Navigate(s.origin + path))
		narrow(path)
		b.shoot(strings.Trim(strings.Map(func(r rune) rune {
			if r < 'a' || r > 'z' {
				return '-'
			}
			return r
		}, path), "-") + "-320.png")
	}
}

func (b *tab) scheme(name string) {
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	}))
}

// shoot saves a screenshot among the test's artifacts.
func (b *tab) shoot(name string) {
	b.t.Helper()
	picture, err := chromedp.Run(b.context, chromedp.FullScreenshot(100))
	kit.Must(b.t, err)
	kit.Must(b.t, os.WriteFile(filepath.Join(b.t.ArtifactDir(), name), picture, 0o644))
}

// faintText lists texts whose contrast is below 4.5 (WCAG 2.2, 1.4.3).
const faintText = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const luminance = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const color = rgba(getComputedStyle(e).backgroundColor); if (color[3] === 255) return color; } return [255, 255, 255]; };
  return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).filter((e) => {
    const [a, b] = [luminance(rgba(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
    return (a + .05) / (b + .05) < 4.5;
  }).map((e) => e.innerText);
})()`
