//go:build browser

// The start page in a real browser:
//
//	go test -tags browser ./test/browser
//
// It needs Chromium; for root on Debian it is installed. With -artifacts, the
// screenshots are kept.
package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// The page as people use it: sign in, buy, be notified at once, mark it read, return it.
func TestBrowserPurchase(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	b.until("names to try", shows("#hint", "alice"))
	b.signIn("alice")
	user := b.text("#user-id")
	b.do(chromedp.Evaluate[chromedp.Void]("window.sameDocument = true"))
	b.click(rowButton("#goods", "Sword of Dawn"))
	b.until("the item is owned", shows("#owned", "ACTIVE")+" && "+shows("#goods", "Owned"))
	b.until("the notification shows", shows("#inbox .unread", "Sword of Dawn is yours"))
	b.until("the message shows", shows("#message-text", "Sword of Dawn is yours"))
	b.click(rowButton("#inbox", "Sword of Dawn is yours"))
	b.until("the notification is read", "document.querySelectorAll('#inbox .unread').length === 0")
	kit.Eventually(t, "the notification is read in the database", func() bool {
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = $1 AND read_at IS NOT NULL`, user) == 1
	})
	b.click(rowButton("#owned", "Sword of Dawn"))
	b.until("the item is returned", shows("#owned", "REVOKED")+" && "+shows("#inbox", "is no longer yours"))

	// Somebody else grants an item that the shop does not know.
	system.WantStatus(t, s.Grant("k1", user, "<b>item1</b>"), http.StatusOK)
	b.until("the notification shows as text", shows("#inbox", "<b>item1</b> is yours")+" && "+shows("#owned", "<b>item1</b>"))
	if !b.is("window.sameDocument") {
		t.Error("the page was reloaded")
	}
	if !b.is("document.querySelectorAll('#inbox > li').length === 3") {
		t.Errorf("the inbox shows %s, want three notifications", b.text("#inbox"))
	}
	if got := s.Count(`SELECT count(*) FROM entitlement.entitlements WHERE user_id = $1`, user); got != 2 {
		t.Errorf("%d entitlements, want 2", got)
	}
}

// Tabs that sign in at the same time do not disturb each other, and the later session
// replaces the earlier one in both.
func TestBrowserTwoTabsSignIn(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	one := s.browse(t)
	two := s.open(t, one.context)
	for _, b := range []*tab{one, two} {
		b.click("document.querySelector('#sign-in')")
		b.do(chromedp.WaitVisible(chromedp.ID("username")))
	}
	var both sync.WaitGroup
	for _, b := range []*tab{one, two} {
		both.Go(func() { b.atIssuer("bob") })
	}
	both.Wait()
	for _, b := range []*tab{one, two} {
		b.until("both are signed in and live", signedIn+" && "+isLive)
	}
	if one.text("#user-id") != two.text("#user-id") {
		t.Error("the tabs show two users")
	}
	// From now on they share a session.
	one.click(rowButton("#goods", "Oaken Shield"))
	two.until("both tabs show the notification", shows("#inbox", "Oaken Shield is yours"))
	two.click("document.querySelector('#sign-out')")
	one.until("both are signed out", signedOut)
}

// A sign-out in one tab soon shows in the others: in one in the background, which has no
// stream, and after going back to the page. No data of the user stays.
func TestBrowserSignOut(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	one := s.browse(t)
	one.signIn("carol")
	two := s.open(t, one.context)
	front := s.open(t, two.context, chromedp.WithNewWindow(false))
	hidden := 0
	for _, b := range []*tab{one, two, front} {
		b.until("every tab is signed in", signedIn)
		if b.is("document.hidden") {
			hidden++
		}
	}
	if hidden != 1 {
		t.Errorf("%d tabs are hidden, want 1", hidden)
	}
	away := s.open(t, one.context)
	away.until("every tab is signed in", signedIn)
	away.do(chromedp.Evaluate[chromedp.Void]("addEventListener('pagehide', () => sessionStorage.setItem('left', 'left: ' + document.querySelector('main').textContent))"))
	away.do(chromedp.Navigate(s.origin + "/docs"))
	one.click("document.querySelector('#sign-out')")
	away.do(chromedp.Evaluate[chromedp.Void]("history.back()"))
	for _, b := range []*tab{one, two, front, away} {
		b.until("every tab is signed out", signedOut)
		if b.is("document.querySelector('main').textContent.includes('u_')") {
			t.Error("the user id is still on the page")
		}
	}
	if !away.is("sessionStorage.getItem('left').startsWith('left: ') && !sessionStorage.getItem('left').includes('u_')") {
		t.Error("the user id was on the page when it was left")
	}
}

// A session that the issuer ends shows too: by the end of the stream alone, not from
// another tab.
func TestBrowserSessionEnds(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	one := s.browse(t)
	one.signIn("carol")
	two := s.open(t, one.context)
	two.until("the other tab is signed in", signedIn+" && "+isLive)
	began := time.Now()
	if n := s.issuer.EndSessions(context.Background(), "carol"); n == 0 {
		t.Fatal("the issuer had no session to end")
	}
	for _, b := range []*tab{one, two} {
		b.until("the tab is signed out", signedOut)
	}
	t.Logf("signed out %s after the issuer ended the session", time.Since(began).Round(time.Millisecond))
}

// Signing in with a second identity links it.
func TestBrowserLink(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	b.signIn("alice")
	user := b.text("#user-id")
	b.click("document.querySelector('#link-identity')")
	b.atIssuer("bob")
	b.until("both are shown", shows("#identities", issuer.AliceSubject)+" && "+shows("#identities", issuer.BobSubject))
	if now := b.text("#user-id"); now != user {
		t.Errorf("the user %s became %s", user, now)
	}
}

// Everything can be done with the keyboard: the focus is visible, and stays where it was
// when the page changes.
func TestBrowserKeyboard(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	b.until("the page is there", signedOut)
	b.tabTo("Sign in")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("the issuer's form has the focus", "document.activeElement?.id === 'username'")
	b.do(chromedp.KeyEvent("alice"+kb.Tab+"alice"), chromedp.KeyEvent(kb.Enter))
	b.until("she is signed in", signedIn+" && "+isLive+" && "+shows("#goods", "Buy"))
	b.tabTo("Buy Lantern of Fireflies")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("the notification shows", shows("#inbox", "Lantern of Fireflies is yours")+" && "+shows("#owned", "ACTIVE"))
	if !b.is("document.activeElement === " + rowButton("#goods", "Lantern")) {
		t.Error("the purchase took the focus away")
	}
	b.do(chromedp.KeyEvent(kb.Enter)) // the item is owned: nothing happens
	b.tabTo("Refund Lantern of Fireflies")
	b.tabTo("Mark read Lantern of Fireflies is yours")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("the notification is read, and the focus is still in its row", "document.querySelectorAll('#inbox .unread').length === 0 && document.activeElement.closest('#inbox > li')")
	b.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	b.until("the focus moves on from there", "document.activeElement.closest('#owned')")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("the item is returned, and the focus is still in its row", shows("#owned", "REVOKED")+" && document.activeElement.closest('#owned > li')")
	if n := s.Count(`SELECT coalesce(sum(version), 0)::int FROM entitlement.entitlements`); n != 2 {
		t.Errorf("%d changes of entitlements, want 2", n)
	}
	b.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur(), document.querySelector('.brand').focus()"))
	b.tabTo("Sign out")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("she is signed out, with the focus on signing in", signedOut+" && document.activeElement.id === 'sign-in'")
}

// A broken stream is reopened, and what happened meanwhile shows. A background tab has
// none, and catches up when it comes to the front: browsers open six connections to a
// server, and more tabs than that must work.
func TestBrowserStream(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	first := s.browse(t)
	first.signIn("alice")
	user := first.text("#user-id")
	s.front.CloseClientConnections()
	system.WantStatus(t, s.Grant("k1", user, "item1"), http.StatusOK)
	first.until("the stream is away", shows("#live", "Reconnecting…"))
	first.until("the stream is back, with what happened", isLive+" && "+shows("#inbox", "item1 is yours")+" && "+shows("#owned", "item1"))

	last := first
	for range 7 {
		last = s.open(t, first.context, chromedp.WithNewWindow(false))
		last.until("the tab is live", signedIn+" && "+isLive)
	}
	if !first.is("document.hidden") {
		t.Error("the first tab is not in the background")
	}
	system.WantStatus(t, s.Grant("k2", user, "item2"), http.StatusOK)
	last.until("the last tab shows the notification", shows("#inbox", "item2 is yours"))
	first.front()
	first.until("the first tab has caught up", isLive+" && "+shows("#inbox", "item2 is yours")+" && "+shows("#owned", "item2"))
}

// A part that is away shows the reason, and the others work.
func TestBrowserPartAway(t *testing.T) {
	t.Parallel()
	s := setupSite(t, "ENTITLEMENT_DATABASE_URL=postgres://127.0.0.1:1/none?connect_timeout=1")
	s.fails = []string{"/demo/shop/purchases"}
	b := s.browse(t)
	b.signIn("alice")
	b.until("the reason is shown", shows("#reason-entitlements", "cannot be reached"))
	b.click(rowButton("#goods", "Sword of Dawn"))
	b.until("the reason is shown", shows("#message-text", "The shop cannot reach"))
	b.click("document.querySelector('#message-close')")
	b.until("the message is closed", "document.querySelector('#message-text').innerText === ''")
	b.until("the button may be pressed again", rowButton("#goods", "Sword of Dawn")+".ariaDisabled === null")
}

// Long lists come page by page, and the next page leaves the focus where it was.
func TestBrowserPages(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browse(t)
	b.signIn("alice")
	user := b.text("#user-id")
	b.do(chromedp.Navigate(s.origin + "/docs")) // so that they do not arrive one by one
	const many = 105
	for i := range many {
		system.WantStatus(t, s.Grant(fmt.Sprint("k", i), user, fmt.Sprintf("item%03d", i)), http.StatusOK)
	}
	kit.Eventually(t, "all notifications are sent", func() bool {
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) == many
	})
	b.do(chromedp.Navigate(s.origin + "/"))
	rows := func(list string, n int) string {
		return fmt.Sprintf("document.querySelectorAll('%s > li').length === %d", list, n)
	}
	b.until("the first pages are there", rows("#owned", 100)+" && "+rows("#inbox", 20))
	b.do(chromedp.Focus(chromedp.ID("more-notifications")), chromedp.KeyEvent(kb.Enter))
	b.until("older ones are there", rows("#inbox", 40)+" && document.activeElement.id === 'more-notifications'")
	b.click("document.querySelector('#more-entitlements')")
	b.until("all entitlements are there", rows("#owned", many)+" && !document.querySelector('#more-entitlements').checkVisibility()")
	for n := 60; n < many+20; n += 20 {
		b.click("document.querySelector('#more-notifications')")
		b.until("older ones are there", rows("#inbox", min(n, many)))
	}
	b.until("there are no more", "!document.querySelector('#more-notifications').checkVisibility() && document.activeElement.id === 'notifications'")
}
