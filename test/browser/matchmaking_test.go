//go:build browser

package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// setupQueues starts a site whose functions are ticked, as make run does.
func setupQueues(t testing.TB, environment ...string) *site {
	t.Helper()
	s := setupSite(t, append([]string{"GAME_SERVER=arena.example:7203"}, environment...)...)
	s.Schedule()
	return s
}

// player signs in with a browser of its own.
func (s *site) player(t testing.TB, name string) *tab {
	t.Helper()
	b := s.browse(t)
	b.atSignIn(name)
	b.until(name+" is live", isLive)
	return b
}

// atSignIn signs in once the issuer's form has the focus: earlier input makes the browser
// complain.
func (b *tab) atSignIn(name string) {
	b.t.Helper()
	b.click("document.querySelector('#sign-in')")
	b.until("the issuer's form has the focus", "document.activeElement?.id === 'username'")
	b.atIssuer(name)
	b.until(name+" is signed in", signedIn)
}

// enqueue joins a queue as a service client of the issuer.
func (s *site) enqueue(client, secret, mode, attributes string) {
	s.T.Helper()
	system.WantStatus(s.T, s.Call(http.MethodPost, "/v1/matchmaking/queues/"+mode+"/tickets", identity.Token(s.T, s.issuer.URL(), client, secret),
		fmt.Sprintf(`{"party_size":1,"attributes":%s,"idempotency_key":"k1"}`, attributes)), http.StatusCreated)
}

// choose sets one of the form's fields.
func (b *tab) choose(id, value string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		"(e => { e.value = %q; e.dispatchEvent(new Event('change', { bubbles: true })); })(document.getElementById(%q))", value, id)))
}

// join joins a queue; rank with a skill of 1500, in a region or any.
func (b *tab) join(mode, region string) {
	b.t.Helper()
	b.choose("mode", mode)
	if mode == "rank" {
		b.choose("region", region)
	}
	b.click("document.querySelector('#join-queue')")
}

// ticket returns the id of the ticket that is shown for a mode, or "".
func (b *tab) ticket(mode string) string {
	id, err := chromedp.Run(b.context, chromedp.Evaluate[string](ticketRow(mode)+"?.dataset.ticket ?? ''"))
	kit.Must(b.t, err)
	return id
}

// allowRefusals ignores the browser's complaints about requests that are refused from now
// on.
func (b *tab) allowRefusals() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, log.Disable, cdp.Empty{})
		return err
	}))
}

// reloadWith reloads the page and runs a script before the page's own.
func (b *tab) reloadWith(script string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	}), chromedp.Reload())
}

func ticketRow(mode string) string {
	return fmt.Sprintf("[...document.querySelectorAll('#tickets > li')].find(row => row.dataset.ticket.startsWith('%s_'))", mode)
}

func ticketButton(mode, action string) string {
	return ticketRow(mode) + fmt.Sprintf("?.querySelector('[data-action=%s]')", action)
}

// ticketShows is true if the ticket of a mode shows all texts.
func ticketShows(mode string, texts ...string) string {
	list, err := json.Marshal(texts)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s.every(text => %s?.innerText.includes(text))", list, ticketRow(mode))
}

// Two players in two browsers are matched, and each sees the other and where they meet.
func TestBrowserMatch(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	alice, bob := s.player(t, "alice"), s.player(t, "bob")
	alice.join("casual", "")
	alice.until("alice waits", ticketShows("casual", "QUEUED", "Nobody else waits in this queue.", "Place\n1"))
	bob.join("casual", "")
	for b, peer := range map[*tab]*tab{alice: bob, bob: alice} {
		b.until("they see each other", ticketShows("casual", "MATCHED", peer.text("#user-id"), "arena.example:7203", "m_"))
		b.until("the notification shows", shows("#inbox", "Casual: you have an opponent"))
		b.until("they may join again, and not leave", "document.querySelector('#join-queue').ariaDisabled === null && !"+ticketButton("casual", "leave")+".checkVisibility()")
	}
	const match = "document.querySelector('#tickets > li > .what > dl > :last-child').innerText"
	if of := func(b *tab) string {
		text, err := chromedp.Run(b.context, chromedp.Evaluate[string](match))
		kit.Must(t, err)
		return text
	}; of(alice) != of(bob) {
		t.Errorf("the players are in two matches: %q and %q", of(alice), of(bob))
	}
	alice.do(chromedp.Reload())
	alice.until("the match is there after a reload", ticketShows("casual", "MATCHED", bob.text("#user-id"), "arena.example:7203"))
	alice.join("casual", "")
	alice.until("the next wait has an estimate", ticketShows("casual", "QUEUED", "Others waited\nabout"))
}

// Waiting shows and can be cancelled, and neither a reload nor a device's wrong clock
// changes anything.
func TestBrowserLeaveQueue(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	b := s.player(t, "alice")
	b.join("casual", "")
	b.until("she waits", ticketShows("casual", "QUEUED")+" && document.querySelector('#join-queue').ariaDisabled === 'true'")
	first := b.ticket("casual")
	waited := func(condition string) string {
		return "(s => " + condition + ")(parseInt(" + ticketRow("casual") + "?.innerText.match(/Waited\\n(\\d+) s/)?.[1]))"
	}
	b.until("the seconds advance, though the server sends nothing", waited("s >= 2"))
	b.reloadWith("const now = Date.now; Date.now = () => now() + 300_000;")
	b.until("she still waits, and as long as she does", ticketShows("casual", "QUEUED")+" && "+waited("s >= 2 && s < 60"))
	if now := b.ticket("casual"); now != first {
		t.Errorf("after the reload, ticket %s became %s", first, now)
	}
	b.click(ticketButton("casual", "leave"))
	b.until("she has left", ticketShows("casual", "CANCELLED", "You left the queue.", "again"))
	b.click(ticketButton("casual", "again"))
	b.until("she waits again", ticketShows("casual", "QUEUED", "Leave"))
	if b.ticket("casual") == first {
		t.Error("she waits with the ticket that she cancelled")
	}
	b.click("document.querySelector('#sign-out')")
	b.until("she is signed out", signedOut)
	if b.is("document.querySelector('#tickets').children.length > 0") {
		t.Error("her ticket is still on the page")
	}
}

// The page has one stream, the only source of a ticket's changes. A late answer changes
// nothing.
func TestBrowserFollowsTicket(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	b := s.player(t, "alice")
	b.reloadWith("window.streams = []; EventSource = class extends EventSource { constructor(url) { super(url); streams.push(this); } };")
	b.until("she is signed in", signedIn+" && "+isLive)
	b.join("rank", "eu")
	b.until("she waits", ticketShows("rank", "QUEUED", "Nobody else waits"))
	b.until("one stream follows her ticket", "(open => open.length === 1 && open[0].url.endsWith('ticket_id="+b.ticket("rank")+"'))(streams.filter(s => s.readyState === EventSource.OPEN))")
	b.do(chromedp.Evaluate[chromedp.Void](`
		const ask = fetch;
		window.late = [];
		window.fetch = async (path, ...options) => {
			const answer = await ask(path, ...options);
			if (path === "/v1/me/overview") await new Promise((come) => late.push(come));
			return answer;
		};
		window.dispatchEvent(new Event("focus"));`))
	b.until("the page has asked, while she waits", "late.length === 1")
	s.enqueue(issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret, "rank", `{"skill":1500,"region":"us"}`)
	b.until("the reason shows", ticketShows("rank", "QUEUED", "Nobody who waits has the same region."))
	s.enqueue(issuer.OpsClientID, issuer.OpsClientSecret, "rank", `{"skill":1500,"region":"eu"}`)
	b.until("the match shows", ticketShows("rank", "MATCHED", "arena.example:7203"))
	b.do(chromedp.Evaluate[chromedp.Void]("late[0]()"))
	b.until("the page asks again", "late.length === 2")
	if !b.is(ticketShows("rank", "MATCHED")) {
		t.Error("the late answer removed the match")
	}
	if !b.is("streams.filter(s => s.readyState !== EventSource.CLOSED).length === 1") {
		t.Error("there is more than one stream")
	}
}

// Players of different regions are not matched and see why; a player without a region is
// matched with either. With two queues at once, both are followed.
func TestBrowserRank(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	alice := s.player(t, "alice")
	alice.join("casual", "")
	alice.until("alice waits for anybody", ticketShows("casual", "QUEUED"))
	alice.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#region').append(new Option('odd', '<b>eu</b>'))"))
	alice.join("rank", "<b>eu</b>")
	alice.until("and for her like, with what she sent as text", ticketShows("rank", "QUEUED", "Nobody else waits", "region <b>eu</b>", "skill 1500"))
	bob := s.player(t, "bob")
	bob.join("rank", "us")
	for _, b := range []*tab{alice, bob} {
		b.until("both see the reason", ticketShows("rank", "QUEUED", "Nobody who waits has the same region."))
	}
	bob.click(ticketButton("rank", "leave"))
	bob.until("bob has left", ticketShows("rank", "CANCELLED"))
	bob.join("rank", "")
	for b, peer := range map[*tab]*tab{alice: bob, bob: alice} {
		b.until("they meet", ticketShows("rank", "MATCHED", peer.text("#user-id"), "arena.example:7203"))
	}
	alice.until("alice still waits for anybody", ticketShows("casual", "QUEUED"))
	bob.join("casual", "")
	for b, peer := range map[*tab]*tab{alice: bob, bob: alice} {
		b.until("they meet", ticketShows("casual", "MATCHED", peer.text("#user-id")))
	}
}

// Expired tickets show as expired, whichever of them is followed.
func TestBrowserExpires(t *testing.T) {
	t.Parallel()
	s := setupQueues(t, "MATCHMAKING_TTL=3s")
	b := s.player(t, "alice")
	b.join("casual", "")
	b.until("she waits", ticketShows("casual", "QUEUED"))
	b.join("rank", "asia")
	for _, mode := range []string{"casual", "rank"} {
		b.until(mode+" has expired", ticketShows(mode, "EXPIRED", "Nobody was found in time.", "again"))
	}
	b.click(ticketButton("rank", "again"))
	b.until("she waits again, with what she had sent", ticketShows("rank", "QUEUED", "skill 1500", "region asia"))
}

// While no game server is free the players see that one is being sought, then that none
// was found.
func TestBrowserNoServer(t *testing.T) {
	t.Parallel()
	var given atomic.Bool
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"code":8,"message":"there is no available GameServer to allocate"}`))
		given.Store(true)
	}))
	t.Cleanup(full.Close)
	s := setupQueues(t, "ALLOCATOR=agones", "AGONES_FLEET=arena", "AGONES_URL="+full.URL, "ALLOCATOR_PATIENCE=4s")
	b := s.player(t, "alice")
	b.join("casual", "")
	s.enqueue(issuer.OpsClientID, issuer.OpsClientSecret, "casual", `{}`)
	b.until("one is being found", ticketShows("casual", "MATCHED", "finding a game server…"))
	b.until("there was none", ticketShows("casual", "MATCHED", "there was no game server", "again"))
	if !given.Load() {
		t.Error("no game server was asked for")
	}
}

// A player who already waits on another device sees that ticket; other refusals show
// their reason.
func TestBrowserJoinRefused(t *testing.T) {
	t.Parallel()
	s := setupQueues(t, "MATCHMAKING_QUEUE_LIMIT=2")
	here, there := s.player(t, "alice"), s.player(t, "alice")
	here.allowRefusals()
	there.allowRefusals()
	here.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('#skill').max = ''"))
	here.choose("skill", "10001")
	here.join("rank", "eu")
	here.until("the reason is shown", shows("#message-text", "send a number from 0 to 10000"))
	here.click("document.querySelector('#message-close')")
	here.choose("skill", "1500")
	here.join("rank", "eu")
	here.until("she waits", ticketShows("rank", "QUEUED"))
	there.join("rank", "us")
	there.until("her ticket is shown", ticketShows("rank", "QUEUED", "region eu"))
	if there.ticket("rank") != here.ticket("rank") || there.text("#message-text") != "" {
		t.Errorf("the other device shows ticket %q and message %q, want the same ticket and no message", there.ticket("rank"), there.text("#message-text"))
	}
	there.click(ticketButton("rank", "leave"))
	there.until("she has left", ticketShows("rank", "CANCELLED"))
	here.until("she has left here, too", ticketShows("rank", "CANCELLED"))

	s.enqueue(issuer.OpsClientID, issuer.OpsClientSecret, "rank", `{"skill":0}`)
	s.enqueue(issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret, "rank", `{"skill":9000}`)
	here.click(ticketButton("rank", "again"))
	here.until("the reason is shown", shows("#message-text", "Too many wait in this queue"))
	here.until("the button may be pressed again", ticketButton("rank", "again")+".ariaDisabled === null")
}

// A ticket that Redis has lost is dropped, and the stream of notifications continues
// without it. A stream that is refused is not reopened at once.
func TestBrowserTicketLost(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	b := s.player(t, "alice")
	b.join("casual", "")
	b.until("she waits", ticketShows("casual", "QUEUED")+" && "+isLive)
	b.allowRefusals()
	options, err := redis.ParseURL(s.Redis.URL())
	kit.Must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	keys, err := client.Keys(t.Context(), "mm:*:{casual}:*").Result()
	kit.Must(t, err)
	kit.Must(t, client.Del(t.Context(), append(keys, "mm:queue:{casual}")...).Err())
	s.front.CloseClientConnections()
	b.until("the ticket is gone, and the stream is there", "document.querySelector('#tickets').children.length === 0 && "+isLive)
	system.WantStatus(t, s.Grant("k1", b.text("#user-id"), "item1"), http.StatusOK)
	b.until("the notification shows", shows("#inbox", "item1 is yours"))
	b.join("casual", "")
	b.until("she may join again", ticketShows("casual", "QUEUED"))
}

// Joining needs no mouse, and every field has a label.
func TestBrowserJoinByKeyboard(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	b := s.player(t, "alice")
	b.tabTo("Casual Rank")
	b.do(chromedp.KeyEvent("r"))
	b.until("there are the fields of rank", "document.querySelector('#skill').checkVisibility()")
	b.do(chromedp.KeyEvent(kb.Tab))
	b.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.select()"), chromedp.KeyEvent("1234"+kb.Tab), chromedp.KeyEvent("e"))
	b.tabTo("Join")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("she waits, and the focus is where it was", ticketShows("rank", "QUEUED", "skill 1234", "region eu")+" && document.activeElement.id === 'join-queue'")
	b.do(chromedp.KeyEvent(kb.Enter)) // she already waits: nothing happens
	b.tabTo("Leave Rank")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("she has left, and the focus is still in its row", ticketShows("rank", "CANCELLED")+" && document.activeElement.closest('#tickets > li')")
	b.tabTo("Join Rank again")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("she waits again", ticketShows("rank", "QUEUED")+" && document.activeElement.closest('#tickets > li')")
	if !b.is("[...document.querySelectorAll('#opponent :is(select, input)')].every(e => e.labels.length === 1)") {
		t.Error("a field has no label")
	}
}

// Waiting and matched, the page fits a screen 320 px wide and is readable in light and
// dark.
func TestBrowserMatchLook(t *testing.T) {
	t.Parallel()
	s := setupQueues(t)
	b := s.player(t, "alice")
	look := func(what string) {
		b.until("nothing is in the way", "document.querySelector('#message-text').innerText === ''")
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			if faint, err := chromedp.Run(b.context, chromedp.Evaluate[[]string](faintText)); err != nil || len(faint) > 0 {
				t.Errorf("%s, %s: hard to read: %q %v", what, scheme, faint, err)
			}
			for _, width := range []int64{1200, 360, 320} {
				b.do(chromedp.EmulateViewport(width, 800))
				if !b.is(fmt.Sprintf("document.scrollingElement.scrollWidth <= %d", width)) {
					t.Errorf("%s: the page scrolls sideways at %d px", what, width)
				}
				b.shoot(fmt.Sprintf("%s-%s-%d.png", what, scheme, width))
			}
		}
		b.do(chromedp.EmulateViewport(1200, 800))
	}
	b.join("rank", "eu")
	b.until("she waits", ticketShows("rank", "QUEUED"))
	s.enqueue(issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret, "rank", `{"skill":9000,"region":"eu"}`)
	b.until("the reason shows", ticketShows("rank", "of your skill"))
	look("waiting")
	s.enqueue(issuer.OpsClientID, issuer.OpsClientSecret, "rank", `{"skill":1500,"region":"eu"}`)
	b.until("she is matched", ticketShows("rank", "MATCHED", "arena.example:7203"))
	b.join("casual", "")
	b.until("she waits again", ticketShows("casual", "QUEUED"))
	look("matched")
	b.click(ticketButton("casual", "leave"))
	b.until("she has left", ticketShows("casual", "CANCELLED"))
	look("left")
}

// A refused stream is reopened after a while, not at once, although the rest of the page
// is refreshed meanwhile.
func TestBrowserStreamRefused(t *testing.T) {
	t.Parallel()
	s := setupSite(t, "NOTIFICATION_DATABASE_URL=postgres://127.0.0.1:1/none?connect_timeout=1")
	b := s.browse(t)
	b.allowRefusals()
	b.atSignIn("alice")
	const asked = "performance.getEntriesByType('resource').filter(e => e.name.includes('/v1/me/notifications/stream'))"
	b.until("the stream is tried again", asked+".length >= 4")
	if b.is(asked + "[3].startTime - " + asked + "[0].startTime < 2000") {
		t.Error("the stream was opened four times within two seconds")
	}
}
