//go:build chaos

package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

const (
	writers  = 4 // clients that grant and revoke
	payers   = 4 // players who send each other money
	players  = 8 // who wait for matches
	visitors = 4 // with one session
	users    = 6 // who are granted something
	items    = 4 // of each
	balance  = 1000
	retryIn  = 150 * time.Millisecond
	paceLow  = 5 * time.Millisecond
	paceHigh = 60 * time.Millisecond
)

// journal is what clients and faults noted: the truth that the system is compared with.
type journal struct {
	mutex   sync.Mutex
	broken  []string // promises
	writes  []*write
	tickets []*ticket
	faults  []happened
	hits    map[string]int // of points
	losses  []*loss
	// answers are by kind, and by kind and process.
	answers map[string][]time.Time
	retries map[string]int // by why
}

func newJournal() *journal {
	return &journal{hits: map[string]int{}, answers: map[string][]time.Time{}, retries: map[string]int{}}
}

// breach notes a broken promise.
func (j *journal) breach(format string, arguments ...any) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.broken = append(j.broken, fmt.Sprintf(format, arguments...))
}

func (j *journal) note(h happened) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.faults = append(j.faults, h)
}

// loss is when Redis forgot, or may have forgotten, what it had answered before. Its end is
// zero while it may still forget.
type loss struct{ began, ended time.Time }

// forget begins a loss. A client may notice one before over is called.
func (j *journal) forget() (over func()) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	l := &loss{began: time.Now()}
	j.losses = append(j.losses, l)
	return func() {
		j.mutex.Lock()
		defer j.mutex.Unlock()
		l.ended = time.Now()
	}
}

// forgetful reports whether Redis may have forgotten something since.
func (j *journal) forgetful(since time.Time) bool {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return slices.ContainsFunc(j.losses, func(l *loss) bool { return l.ended.IsZero() || since.Before(l.ended) })
}

// lost reports whether Redis may have forgotten something between two times.
func (j *journal) lost(from, to time.Time) bool {
	return slices.ContainsFunc(j.losses, func(l *loss) bool { return from.Before(l.ended) && l.began.Before(to) })
}

// forgot reports whether Redis may have forgotten a ticket before its player saw how it
// ended.
func (j *journal) forgot(t *ticket) bool { return j.lost(t.joined, t.ended) }

// answered notes when something of a kind was answered, by which process.
func (j *journal) answered(kind string, by *process) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for _, name := range []string{kind, kind + by.name} {
		j.answers[name] = append(j.answers[name], time.Now())
	}
}

// write is a request that changes something once, and its answer.
type write struct {
	kind, path, token, key, body string
	user, item                   string // of grants and revokes
	from, to                     int64  // of transfers, as is the amount
	amount                       string
	answer                       string // "" if it never was answered
	status                       int
}

// ticket is a player's ticket as the player saw it.
type ticket struct {
	id, player    string
	joined, ended time.Time
	status        string // the terminal one, or GONE
	match, peer   string
	sentAgain     bool // its join was
	// forgiven is one whose match Redis forgot before its player was notified of it.
	forgiven bool
}

// client is somebody who sends requests to either gateway, and repeats them until they
// are answered.
type client struct {
	*world
	random *rand.Rand
	asked  int    // requests
	cookie string // sent instead of a token, if there is one
}

func (w *world) client(n int) *client {
	return &client{world: w, random: rand.New(rand.NewPCG(w.seed, uint64(n)))}
}

type answer struct {
	status int
	header http.Header
	body   string
	by     *process
}

func (a answer) field(name string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(a.body), &fields) != nil || fields[name] == nil {
		return ""
	}
	return fmt.Sprint(fields[name])
}

// ask sends a request once, and reports whether its outcome is known. Now and then the
// client hangs up at once.
func (c *client) ask(method, path, token, key, body string) (a answer, known bool) {
	c.asked++
	patient, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	ctx := patient
	if c.random.IntN(20) == 0 {
		ctx, cancel = context.WithTimeout(ctx, between(c.random, time.Millisecond, 20*time.Millisecond))
		defer cancel()
	}
	gateway := c.gateways[c.random.IntN(len(c.gateways))]
	request, err := http.NewRequestWithContext(ctx, method, gateway.url()+path, strings.NewReader(body))
	if err != nil {
		c.breach("%v", err)
		return a, false
	}
	if c.cookie != "" {
		request.Header.Set("Cookie", c.cookie)
	} else {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil && patient.Err() != nil {
		c.retry("none within " + answerWithin.String())
		say("%s %s of gateway %s is not answered within %s", method, path, gateway.name, answerWithin)
		return a, false
	}
	if err != nil {
		c.retry("no answer")
		return a, false
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.retry("half an answer")
		return a, false
	}
	a = answer{response.StatusCode, response.Header, string(text), gateway}
	code := a.field("code")
	switch {
	case a.status == http.StatusAccepted || code == "idempotency_in_progress":
	case a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests:
		if a.header.Get("Retry-After") == "" {
			c.breach("%s %s is answered %d without Retry-After: %s", method, path, a.status, a.body)
		}
	case a.status == http.StatusGatewayTimeout:
	case a.status >= http.StatusInternalServerError:
		c.breach("%s %s is answered %d %s", method, path, a.status, a.body)
	default:
		return a, true
	}
	c.retry(fmt.Sprint(a.status, " ", code))
	return a, false
}

func (c *client) retry(why string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.retries[why]++
}

// until repeats a request until its outcome is known. It gives up when the system should
// long have recovered.
func (c *client) until(ctx context.Context, method, path, token, key, body string) (answer, bool) {
	var deadline time.Time
	for ; ; kit.Pause(retryIn) {
		if a, known := c.ask(method, path, token, key, body); known {
			return a, true
		}
		if ctx.Err() != nil && deadline.IsZero() {
			deadline = time.Now().Add(quietWithin)
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			c.breach("%s %s with key %s is not answered %s after all faults", method, path, key, quietWithin)
			return answer{}, false
		}
	}
}

// send sends a write until it is answered, and notes both.
func (c *client) send(ctx context.Context, w write) {
	noted := &w
	c.mutex.Lock()
	c.writes = append(c.writes, noted)
	c.mutex.Unlock()
	a, ok := c.until(ctx, http.MethodPost, w.path, w.token, w.key, w.body)
	if !ok {
		return
	}
	if a.status != http.StatusOK {
		c.breach("%s %s is answered %d %s", w.path, w.body, a.status, a.body)
	}
	c.answered(w.kind, a.by)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	noted.status, noted.answer = a.status, a.body
}

// again sends an answered write once more: its answer must be the same.
func (c *client) again(ctx context.Context, w *write) {
	a, ok := c.until(ctx, http.MethodPost, w.path, w.token, w.key, w.body)
	if ok && (a.status != w.status || a.body != w.answer) {
		c.breach("%s with key %s was answered %d %s, and again %d %s", w.path, w.key, w.status, w.answer, a.status, a.body)
	}
	if ok && a.header.Get("Idempotent-Replayed") != "true" {
		c.breach("%s with key %s is not replayed: %s", w.path, w.key, a.body)
	}
}

// earlier returns a write of that kind that was answered, if there is one.
func (c *client) earlier(kind string) *write {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for range 10 {
		if len(c.writes) == 0 {
			return nil
		}
		if w := c.writes[c.random.IntN(len(c.writes))]; w.answer != "" && w.kind == kind {
			return w
		}
	}
	return nil
}

func (c *client) pace(ctx context.Context) { pause(ctx, between(c.random, paceLow, paceHigh)) }

// grant grants and revokes until ctx ends.
func (c *client) grant(ctx context.Context, token string) {
	for ; ctx.Err() == nil; c.pace(ctx) {
		if w := c.earlier("grant"); w != nil && c.random.IntN(10) == 0 {
			c.again(ctx, w)
			continue
		}
		c.grantOnce(ctx, token)
	}
}

// grantOnce grants or revokes once.
func (c *client) grantOnce(ctx context.Context, token string) {
	key := uuid.NewString()
	w := write{kind: "grant", path: system.GrantsPath, token: token, key: key, user: fmt.Sprint("u_", c.random.IntN(users)), item: system.SKU(c.random.IntN(items))}
	reason := "purchase"
	if c.random.IntN(3) == 0 {
		w.path, reason = system.RevokesPath, "refund"
	}
	w.body = system.ChangeBody(w.user, w.item, reason, "p_"+key)
	c.send(ctx, w)
}

// visit reads who it is, with a session, until ctx ends.
func (c *client) visit(ctx context.Context) {
	for ; ctx.Err() == nil; c.pace(ctx) {
		if a, ok := c.until(ctx, http.MethodGet, "/v1/me", "", "", ""); ok && a.status != http.StatusOK {
			c.breach("a session is answered %d %s", a.status, a.body)
		} else if ok {
			c.answered("session", a.by)
		}
	}
}

// payer is a player with money.
type payer struct {
	token, user string
	account     int64
}

// pay sends the other payers money until ctx ends.
func (c *client) pay(ctx context.Context, own int, all []payer) {
	for ; ctx.Err() == nil; c.pace(ctx) {
		if w := c.earlier("transfer"); w != nil && c.random.IntN(10) == 0 {
			c.again(ctx, w)
			continue
		}
		a, ok := c.until(ctx, http.MethodPost, "/v1/idempotency-keys", all[own].token, "", "")
		if !ok || a.status != http.StatusCreated {
			c.breach("no key for a transfer: %d %s", a.status, a.body)
			continue
		}
		to := (own + 1 + c.random.IntN(len(all)-1)) % len(all)
		w := write{kind: "transfer", path: "/v1/transfers", token: all[own].token, key: a.field("idempotencyKey"), from: all[own].account, to: all[to].account}
		w.amount = fmt.Sprintf("%d.%04d", c.random.IntN(40), 1+c.random.IntN(9999))
		if c.random.IntN(20) == 0 {
			w.amount = "1000000.0000" // more than there is
		}
		w.body = fmt.Sprintf(`{"fromAccountId":%d,"toAccountId":%d,"amount":%s}`, w.from, w.to, w.amount)
		c.send(ctx, w)
	}
}

// play waits for matches until ctx ends.
func (c *client) play(ctx context.Context, token, user string) {
	for ; ctx.Err() == nil; c.pace(ctx) {
		mode, attributes := "casual", "{}"
		if c.random.IntN(2) == 0 {
			mode, attributes = "rank", fmt.Sprintf(`{"skill":%d}`, c.random.IntN(300))
		}
		t, asked := &ticket{player: user, joined: time.Now()}, c.asked
		a, ok := c.until(ctx, http.MethodPost, system.JoinPath(mode), token, "", fmt.Sprintf(`{"idempotency_key":%q,"attributes":%s}`, uuid.NewString(), attributes))
		if !ok {
			continue
		}
		t.sentAgain = c.asked > asked+1
		if a.field("code") == "ticket_queued" && c.forgetful(time.Now().Add(-silentFor)) {
			// A link held back a join before this one; Redis forgot its key, and it joined again.
			_, other, _ := strings.Cut(a.field("detail"), "with ticket ")
			other, _, _ = strings.Cut(other, ";")
			c.until(ctx, http.MethodDelete, system.TicketPath(other), token, "", "")
			t.id, t.status, t.joined, t.ended = other, "GONE", t.joined.Add(-silentFor), time.Now()
			c.mutex.Lock()
			c.tickets = append(c.tickets, t)
			c.mutex.Unlock()
			continue
		}
		if t.id = a.field("ticket_id"); a.status != http.StatusCreated || t.id == "" {
			c.breach("a join of %s is answered %d %s", user, a.status, a.body)
			continue
		}
		c.answered("join", a.by)
		c.mutex.Lock()
		c.tickets = append(c.tickets, t)
		c.mutex.Unlock()
		c.await(ctx, t, token)
	}
}

// await reads a ticket until it is terminal, perhaps cancels it meanwhile, and looks once
// more whether it stays so.
func (c *client) await(ctx context.Context, t *ticket, token string) {
	cancelAt := time.Now().Add(time.Hour)
	if c.random.IntN(6) == 0 {
		cancelAt = time.Now().Add(between(c.random, 0, time.Second))
	}
	seen := func() answer {
		a, ok := c.until(ctx, http.MethodGet, system.TicketPath(t.id), token, "", "")
		if !ok || a.status == http.StatusNotFound {
			if !c.forgetful(t.joined) {
				c.breach("ticket %s of %s is lost: %d %s", t.id, t.player, a.status, a.body)
			}
			return answer{}
		}
		return a
	}
	for {
		if ctx.Err() != nil { // nobody else joins any more
			cancelAt = time.Now()
		}
		if !time.Now().Before(cancelAt) {
			cancelAt = cancelAt.Add(time.Hour)
			if a, ok := c.until(ctx, http.MethodDelete, system.TicketPath(t.id), token, "", ""); ok && a.status != http.StatusOK && a.field("code") != "ticket_matched" && a.status != http.StatusNotFound {
				c.breach("cancelling %s is answered %d %s", t.id, a.status, a.body)
			}
		}
		a := seen()
		status, match, peer := a.field("status"), a.field("match_id"), a.field("peer_user_ids")
		if status == "QUEUED" {
			kit.Pause(between(c.random, 20*time.Millisecond, 100*time.Millisecond))
			continue
		}
		if status == "" {
			status = "GONE"
		}
		c.mutex.Lock()
		t.status, t.match, t.peer, t.ended = status, match, strings.Trim(peer, "[]"), time.Now()
		c.mutex.Unlock()
		if status == "MATCHED" {
			c.answered("match", a.by)
		}
		if status != "GONE" {
			c.pace(ctx)
			if last := seen(); last.status != 0 && (last.field("status") != status || last.field("match_id") != match || last.field("peer_user_ids") != peer) && !c.forgetful(t.joined) {
				c.breach("ticket %s was %s %s with %s and became %s", t.id, status, match, peer, last.body)
			}
		}
		return
	}
}

// load starts all clients, and returns what waits for them after the end of ctx.
func (w *world) load(ctx context.Context, payers []payer, waiting []payer) (wait func()) {
	var group sync.WaitGroup
	writer := w.people.Token(w.t, map[string]any{"exp": time.Now().Add(tokenLife).Unix()})
	for n := range writers {
		group.Go(func() { w.client(n).grant(ctx, writer) })
	}
	for n := range payers {
		group.Go(func() { w.client(100+n).pay(ctx, n, payers) })
	}
	for n := range visitors {
		visitor := w.client(300 + n)
		if visitor.cookie = w.cookie; visitor.cookie != "" {
			group.Go(func() { visitor.visit(ctx) })
		}
	}
	for n, p := range waiting {
		group.Go(func() { w.client(200+n).play(ctx, p.token, p.user) })
	}
	return group.Wait
}

// tokenLife outlasts every run.
const tokenLife = 12 * time.Hour

// people registers players, before anything goes wrong.
func (w *world) register() (payers_, waiting []payer) {
	s := &system.System{T: w.t, URL: w.gateways[0].url()}
	player := func(name string) payer {
		token := w.people.Token(w.t, map[string]any{"sub": name, "exp": time.Now().Add(tokenLife).Unix(), "realm_access": map[string]any{"roles": []string{"player"}}})
		return payer{token: token, user: s.UserID(token)}
	}
	operator := w.people.Token(w.t, nil)
	for n := range payers {
		p := player(fmt.Sprint("payer", n))
		if _, err := fmt.Sscan(s.Opened(operator, p.user, fmt.Sprint(balance)), &p.account); err != nil {
			w.t.Fatal(err)
		}
		payers_ = append(payers_, p)
	}
	for n := range players {
		waiting = append(waiting, player(fmt.Sprint("player", n)))
	}
	return payers_, waiting
}

// progress is one line.
func (j *journal) progress() string {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	line := fmt.Sprintf("%d faults; answered: %d grants, %d transfers, %d joins, %d matches; repeated:", len(j.faults),
		len(j.answers["grant"]), len(j.answers["transfer"]), len(j.answers["join"]), len(j.answers["match"]))
	for _, why := range slices.Sorted(maps.Keys(j.retries)) {
		line += fmt.Sprintf(" %d × %s,", j.retries[why], why)
	}
	return strings.TrimSuffix(line, ",")
}
