//go:build browser

package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// button is the button of the console's page with a text.
func button(text string) string {
	return fmt.Sprintf("[...document.querySelectorAll('main button')].find((e) => e.innerText === %q)", text)
}

const nothingStuck = "document.querySelector('#flow')?.innerText.startsWith('Nothing is stuck.')"

// A night on call, with the keyboard: the receiver of webhooks is down, the console shows
// it, the operator reads why, and once the receiver is back has all be sent again.
func TestBrowserNightOnCall(t *testing.T) {
	t.Parallel()
	s, r := setupDesk(t)
	s.Schedule()
	user := s.UserID(s.Writer)
	b := s.atConsole(t, "olga", "/console")
	b.until("nothing is stuck", nothingStuck)
	b.do(chromedp.Evaluate[chromedp.Void]("window.sameDocument = true"))
	r.down.Store(true)
	for _, item := range []string{"sword", "shield", "lantern"} {
		system.WantStatus(t, s.Grant(item, user, item), http.StatusOK)
	}
	b.until("the page shows the alert by itself", shows("#flow", "3 stuck.")+" && "+shows(".step.failed", "3 FAILED")+" && window.sameDocument")

	b.tabTo("Notifications")
	asOf := "document.querySelector('#flow > p').innerText"
	b.do(chromedp.Evaluate[chromedp.Void]("window.before = " + asOf))
	b.until("the next picture leaves the focus where it was", asOf+" !== window.before && document.activeElement.innerText === 'Notifications'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("the rows show their errors", shows("h1", "Stuck in notifications")+" && [...document.querySelectorAll('article')].filter((e) => e.innerText.includes('answered 503')).length === 3")
	b.tabTo("Error contains")
	b.do(chromedp.KeyEvent("410" + kb.Enter))
	b.until("nothing fits another error", shows("main", "Nothing is stuck here that fits the filter."))
	b.tabTo("Error contains")
	b.do(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)), chromedp.KeyEvent("503"+kb.Enter))
	b.until("the three fit theirs", "document.querySelectorAll('article').length === 3")
	b.tabTo("Payload")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("the payload shows", shows("pre", `"user_id": "`+user+`"`))

	r.down.Store(false)
	b.do(chromedp.Reload())
	b.until("the page is there again", "document.readyState === 'complete' && document.querySelectorAll('article').length === 3 && !document.querySelector('details[open]')")
	b.tabTo("Dry run: requeue")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("the dry run counts them", shows("#dry-run", "3 would be changed by requeue in notifications: whose error contains 503."))
	if n := s.notifications("FAILED"); n != 3 {
		t.Errorf("after the dry run %d notifications are FAILED, want 3", n)
	}
	b.tabTo("Reason")
	b.do(chromedp.KeyEvent("INC-42: the receiver is back" + kb.Enter))
	b.until("the act is done", "location.pathname.startsWith('/console/acts/act_') && "+shows("#progress", "DONE: 3 of 3 done"))
	kit.Eventually(t, "each notification is SENT, and arrived once", func() bool { return s.notifications("SENT") == 3 && r.once(3) })
	b.tabTo("Now")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("nothing is stuck any more", nothingStuck)
	b.tabTo("Acts")
	b.do(chromedp.KeyEvent(kb.Enter))
	for _, text := range []string{issuer.OlgaSubject, "INC-42: the receiver is back", "requeue, notifications", "DONE"} {
		b.until("the list says "+text, shows("tbody tr", text))
	}
}

// An act is stopped and resumed where its progress shows, with the focus on the button.
func TestBrowserStopAndResume(t *testing.T) {
	t.Parallel()
	s, _ := setupDesk(t)
	const rows = 40
	s.fail(rows, "u_1")
	s.Schedule()
	b := s.atConsole(t, "olga", "/console/queues/notifications")
	b.until("one page of rows is there", "document.querySelectorAll('article').length === 20")

	// One row: its own form, and only that, asks for the reason and then begins.
	b.click("document.querySelector('article button')")
	b.until("the dry run counts one", shows("article [aria-live]", "1 would be changed"))
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('article [name=reason]').focus()"), chromedp.KeyEvent("this one"+kb.Enter))
	b.until("the act is done", shows("#progress", "DONE: 1 of 1 done"))

	b.do(chromedp.Navigate(s.origin + "/console/queues/notifications"))
	b.click(button("Dry run: requeue"))
	b.until("the dry run counts the others", shows("#dry-run", fmt.Sprint(rows-1, " would be changed")))
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('[name=per_second]').value = 2"),
		chromedp.Evaluate[chromedp.Void]("document.querySelector('[name=reason]').focus()"), chromedp.KeyEvent("slowly"+kb.Enter))
	b.until("the act is running", shows("#progress", "RUNNING"))
	b.tabTo("Stop")
	b.until("progress shows, and the focus stays", "document.querySelector('progress')?.value > 0 && document.activeElement.innerText === 'Stop'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("it is stopped, and the focus is on Resume", shows("#progress", "STOPPED")+" && "+shows("#progress", "stopped by "+issuer.OlgaSubject)+" && document.activeElement.innerText === 'Resume'")
	at, err := chromedp.Run(b.context, chromedp.Evaluate[int]("document.querySelector('progress').value"))
	kit.Must(t, err)
	if at >= rows-1 {
		t.Fatalf("the act did all %d rows before it was stopped", at)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("it goes on", fmt.Sprintf("document.querySelector('progress').value > %d", at))
}

// Viewers see everything and can change nothing; players find nothing; a session that ended
// leads to the sign-in, and back.
func TestBrowserWhoSeesTheConsole(t *testing.T) {
	t.Parallel()
	s, r := setupDesk(t)
	paths := s.stuck(r)
	viewer := s.atConsole(t, "vera", "/console")
	acting := "[...document.querySelectorAll('form[method=post], [hx-post]')].some((e) => !e.getAttribute('hx-post')?.endsWith('/dry-run'))"
	for _, path := range paths {
		viewer.do(chromedp.Navigate(s.origin + path))
		viewer.until(path+" is there for reading", shows("header", "read only"))
		if viewer.is(acting) {
			t.Errorf("%s lets a viewer act", path)
		}
	}
	viewer.do(chromedp.Navigate(s.origin + "/console/queues/notifications"))
	viewer.click(button("Dry run: requeue"))
	viewer.until("the dry run counts, and that is all", shows("#dry-run", "You may look; operators act."))
	if viewer.is(acting) {
		t.Error("a dry run lets a viewer act")
	}

	viewer.do(chromedp.Navigate(s.origin + "/console"))
	viewer.until("the page is live", "window.htmx && "+shows("#flow", "stuck"))
	if s.issuer.EndSessions(context.Background(), "vera") == 0 {
		t.Fatal("the issuer had no session to end")
	}
	viewer.until("the page has gone to the sign-in", "document.activeElement?.id === 'username'")
	viewer.atIssuer("vera")
	viewer.until("she is back", "location.pathname === '/console' && "+shows("#flow", "stuck"))

	player := s.atConsole(t, "alice", "/console")
	player.until("there is nothing for players", shows("main", "route_not_found"))
}

// What goes wrong between browser and functions is said, and what was shown stays.
func TestBrowserConsoleAway(t *testing.T) {
	t.Parallel()
	s, _ := setupDesk(t)
	b := s.atConsole(t, "olga", "/console")
	b.until("nothing is stuck", nothingStuck)
	b.do(chromedp.Evaluate[chromedp.Void](`window.Requests = XMLHttpRequest; XMLHttpRequest = class extends Requests { open(method) { super.open(method, '/v1/nowhere') } }`))
	b.until("the reason shows", shows("#trouble", "There is nothing at this path")+" && "+nothingStuck)
	b.do(chromedp.Evaluate[chromedp.Void]("XMLHttpRequest = Requests"))
	b.until("the reason is gone", "document.querySelector('#trouble').hidden && "+nothingStuck)
}

// The picture in the README: traffic, and something stuck.
func TestBrowserConsoleLook(t *testing.T) {
	t.Parallel()
	s, _ := setupDesk(t) // nothing is ticked, so the samples end as they are
	s.sample()
	user := s.UserID(s.Writer)
	s.fail(12, user)
	s.Joined(s.Writer, "casual", "j1", `{}`)
	b := s.atConsole(t, "olga", "/console")
	b.do(chromedp.EmulateViewport(1280, 800))
	b.until("all is drawn", shows("#flow", "12 stuck.")+" && document.querySelectorAll('.uplot').length === 6")
	b.shoot("console.png")
	b.do(chromedp.Evaluate[chromedp.Void]("window.light = document.querySelector('canvas').toDataURL()"))
	b.scheme("dark")
	b.until("the plots are drawn again, in colours for the dark", "document.querySelectorAll('.uplot').length === 6 && document.querySelector('canvas').toDataURL() !== window.light")
}
