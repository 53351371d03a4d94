//go:build browser

package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// banked signs a player in with a browser of its own, opens an account and returns its
// number.
func (s *site) banked(t testing.TB, name string) (b *tab, account string) {
	t.Helper()
	b = s.player(t, name)
	b.click("document.querySelector('#open-account')")
	b.until(name+" has an account", shows("#accounts", "100 EUR"))
	b.until(name+" is notified", shows("#inbox", "was opened with 100 EUR"))
	return b, b.text("#accounts code")
}

func (b *tab) send(to, amount string) {
	b.t.Helper()
	b.until("nothing is being sent", "!document.querySelector('#send-money').dataset.busy")
	b.choose("to", to)
	b.choose("amount", amount)
	b.click("document.querySelector('#send-money')")
}

// A player sends money to another, and both see their balances change, to the last
// decimal, and are notified.
func TestBrowserMoney(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	alice, mine := s.banked(t, "alice")
	bob, theirs := s.banked(t, "bob")
	alice.send(theirs, "30.0001")
	alice.until("alice has less", shows("#accounts", "69.9999 EUR"))
	bob.until("bob has more, without doing anything", shows("#accounts", "130.0001 EUR"))
	alice.until("alice is notified", shows("#inbox", "30.0001 EUR went to account "+theirs))
	bob.until("bob is notified", shows("#inbox", "30.0001 EUR came from account "+mine))

	bob.send(mine, "130,0002")
	bob.until("there is not that much", shows("#message-text", "There is not that much in the account."))
	bob.click("document.querySelector('#message-close')")
	bob.choose("amount", "0.0001")
	bob.click("document.querySelector('#send-money')")
	bob.until("the next try has a key of its own", shows("#accounts", "130 EUR"))
	alice.until("alice sees it", shows("#accounts", "70 EUR"))
	alice.do(chromedp.Reload())
	alice.until("the account is there after a reload", shows("#accounts", "70 EUR")+" && !document.querySelector('#open-account').checkVisibility()")
	if n := s.Count(`SELECT count(*) FROM core.transfer WHERE kind = 'TRANSFER'`); n != 2 {
		t.Errorf("%d transfers, want 2", n)
	}
	alice.click("document.querySelector('#sign-out')")
	alice.until("she is signed out", signedOut)
	if alice.is("document.querySelector('#accounts').children.length > 0") {
		t.Error("her account is still on the page")
	}
}

// A lost answer neither loses nor doubles the money: the page retries with the same key.
func TestBrowserMoneyAnswerLost(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	alice, _ := s.banked(t, "alice")
	_, theirs := s.banked(t, "bob")
	alice.allowRefusals()
	alice.do(chromedp.Evaluate[chromedp.Void](`
		const ask = fetch;
		window.sent = 0;
		window.fetch = async (path, ...options) => {
			const answer = await ask(path, ...options);
			if (path === "/v1/transfers" && ++sent <= 2) throw new TypeError("cut off");
			return answer;
		};`))
	alice.send(theirs, "10")
	alice.until("the transfer is done", shows("#accounts", "90 EUR")+" && sent === 3")
	if n := s.Count(`SELECT count(*) FROM core.transfer WHERE kind = 'TRANSFER'`); n != 1 {
		t.Errorf("%d transfers, want 1", n)
	}
}

// All answers of an attempt are lost: the user repeats the transfer, even after a reload,
// and it counts once. After that, the same input is another transfer.
func TestBrowserMoneySentAgain(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	alice, _ := s.banked(t, "alice")
	_, theirs := s.banked(t, "bob")
	alice.allowRefusals()
	alice.do(chromedp.Evaluate[chromedp.Void](`
		const ask = fetch;
		window.fetch = async (path, ...options) => {
			const answer = await ask(path, ...options);
			if (path === "/v1/transfers") throw new TypeError("cut off");
			return answer;
		};
		window.setTimeout = ((wait) => (f, ms, ...rest) => wait(f, Math.min(ms, 50), ...rest))(setTimeout);`))
	alice.send(theirs, "10")
	alice.until("the page shows what to do", shows("#message-text", "Send the same again")+" && "+shows("#accounts", "90 EUR"))
	alice.do(chromedp.Reload())
	alice.until("the page again", shows("#accounts", "90 EUR"))
	alice.send(theirs, "10")
	alice.until("the transfer is done", "document.querySelector('#amount').value === ''")
	if n := s.Count(`SELECT count(*) FROM core.transfer WHERE kind = 'TRANSFER'`); n != 1 {
		t.Errorf("%d transfers, want 1", n)
	}
	alice.send(theirs, "10")
	alice.until("another one", shows("#accounts", "80 EUR"))
}

// Amounts with more digits than JavaScript's numbers are shown and sent exactly.
func TestBrowserMoneyIsExact(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	b := s.player(t, "alice")
	operator := identity.Token(t, s.issuer.URL(), "ops", "ops-secret")
	for key, balance := range map[string]string{"k1": "123456789012345.6789", "k2": "0"} {
		system.WantStatus(t, s.Call(http.MethodPost, "/v1/accounts", operator,
			fmt.Sprintf(`{"ownerUserId":%q,"currency":"XTS","initialBalance":%s}`, b.text("#user-id"), balance), "Idempotency-Key: "+key), http.StatusCreated)
	}
	b.do(chromedp.Reload())
	b.until("the balance shows", shows("#accounts", "123456789012345.6789 XTS"))
	to := b.text("#accounts > :last-child code")
	if strings.Contains(b.text("#accounts > :last-child"), "6789") {
		to = b.text("#accounts > :first-child code")
		b.choose("from", b.text("#accounts > :last-child code"))
	}
	b.send(to, "123456789012345.6788")
	b.until("all but the last", shows("#accounts", "0.0001 XTS")+" && "+shows("#accounts", "123456789012345.6788 XTS"))
	b.until("the notification shows", shows("#inbox", "123456789012345.6788 XTS moved from your account"))
}

// Sending needs no mouse, every field has a label, and the form fits and is readable.
func TestBrowserMoneyLook(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	_, theirs := s.banked(t, "bob")
	b := s.player(t, "alice")
	b.tabTo("Open an account with 100 EUR")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("she has an account", shows("#accounts", "100 EUR"))
	b.tabTo(b.text("#accounts code"))
	b.do(chromedp.KeyEvent(kb.Tab + theirs + kb.Tab + "2.5" + kb.Enter))
	b.until("the money is sent", shows("#accounts", "97.5 EUR")+" && "+shows("#inbox", "went to account"))
	if !b.is("[...document.querySelectorAll('#send :is(select, input)')].every(e => e.labels.length === 1)") {
		t.Error("a field has no label")
	}
	b.until("nothing is in the way", "document.querySelector('#message-text').innerText === ''")
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		if faint, err := chromedp.Run(b.context, chromedp.Evaluate[[]string](faintText)); err != nil || len(faint) > 0 {
			t.Errorf("%s: hard to read: %q %v", scheme, faint, err)
		}
		for _, width := range []int64{1200, 320} {
			b.do(chromedp.EmulateViewport(width, 800))
			if !b.is(fmt.Sprintf("document.scrollingElement.scrollWidth <= %d", width)) {
				t.Errorf("the page scrolls sideways at %d px", width)
			}
			b.shoot(fmt.Sprintf("money-%s-%d.png", scheme, width))
		}
	}
}
