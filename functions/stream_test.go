package functions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

const (
	streamPath     = "/v1/me/notifications/stream"
	streamPatience = 20 * time.Second
	// lookEvery is how often a stream looks by itself: what comes sooner was nudged.
	lookEvery = 10 * time.Second
)

// streamEvent is one event of a stream, as EventSource would hand it on.
type streamEvent struct {
	id, name, data string
	at             time.Time
}

// follower is an open stream, and what came over it so far.
type follower struct {
	t      testing.TB
	header http.Header
	hangUp func()
	ended  chan struct{} // closed at the end of the stream
	end    error         // nil when it ended in good order; set before ended is closed

	mutex  sync.Mutex
	lastID string
	retry  string
	events []streamEvent
}

// follow opens a stream; headers are "Name: value".
func (s *system) follow(token string, headers ...string) *follower {
	s.t.Helper()
	return s.followAt(streamPath, token, headers...)
}

func (s *system) followAt(path, token string, headers ...string) *follower {
	s.t.Helper()
	ctx, hangUp := context.WithCancel(context.Background())
	s.t.Cleanup(hangUp)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	must(s.t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	must(s.t, err)
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		s.t.Fatalf("no stream: %s %s", response.Status, body)
	}
	f := &follower{t: s.t, header: response.Header, hangUp: hangUp, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer response.Body.Close()
		f.end = f.read(response.Body)
	}()
	return f
}

// read takes the stream apart as the HTML standard says.
func (f *follower) read(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	var id string
	var e streamEvent
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), ":") {
			continue // a comment
		}
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		f.mutex.Lock()
		switch name {
		case "id":
			id = value
		case "event":
			e.name = value
		case "data":
			e.data += value
		case "retry":
			f.retry = value
		case "": // the end of an event
			f.lastID = id
			if e.data != "" {
				e.id, e.at = id, time.Now()
				f.events = append(f.events, e)
			}
			e = streamEvent{}
		}
		f.mutex.Unlock()
	}
	return lines.Err()
}

func (f *follower) got() []streamEvent {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return slices.Clone(f.events)
}

func (f *follower) position() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.lastID
}

// until waits for n events and returns them.
func (f *follower) until(n int, within time.Duration) []streamEvent {
	f.t.Helper()
	eventually(f.t, within, fmt.Sprintf("%d events", n), func() bool { return len(f.got()) >= n })
	return f.got()
}

// wantEnd waits for the end of the stream and returns what the client sees of it.
func (f *follower) wantEnd(within time.Duration, why string) error {
	f.t.Helper()
	select {
	case <-f.ended:
		return f.end
	case <-time.After(within):
		f.t.Fatalf("the stream did not end within %s: %s", within, why)
		return nil
	}
}

func (f *follower) open() bool {
	select {
	case <-f.ended:
		return false
	default:
		return true
	}
}

// withPlayers starts a system whose issuer's tokens the test writes.
func withPlayers(t testing.TB, environment ...string) (*system, *signedIssuer) {
	t.Helper()
	people := newSignedIssuer(t)
	s := start(t, kit.Listen(t), append([]string{"OIDC_ISSUER=" + people.url}, environment...)...)
	s.writer = people.token(t, nil)
	return s, people
}

// idsOf returns the ids of events, each once.
func idsOf(lists ...[]streamEvent) map[string]bool {
	ids := map[string]bool{}
	for _, list := range lists {
		for _, e := range list {
			ids[e.id] = true
		}
	}
	return ids
}

func sku(n int) string { return fmt.Sprint("item", n) }

// serve runs a handler as a process does, and returns what SIGTERM would do.
func (s *system) serve(listener net.Listener, runtime *fn.Runtime, handler http.Handler) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- process.Serve(ctx, listener, handler, runtime.Settings, runtime.StopClaiming) }()
	stop = sync.OnceValue(func() error { cancel(); return <-served })
	s.t.Cleanup(func() { _ = stop() })
	return stop
}

// served puts the one process behind process.Serve instead of the test's own server.
func (s *system) served() (stop func() error) {
	s.t.Helper()
	listener := kit.Listen(s.t)
	s.url = "http://" + listener.Addr().String()
	return s.serve(listener, s.runtime, s.runtime.Here[functions.GatewayName])
}

// apart puts the gateway into a process of its own, and each of the other
// functions behind a server of its own: all reach each other over HTTP only.
func (s *system) apart() (stopGateway, stopStream func() error) {
	s.t.Helper()
	settings := s.runtime.Settings
	listeners := map[string]net.Listener{}
	var where []string
	for _, f := range functions.All {
		listeners[f.Name] = kit.Listen(s.t)
		where = append(where, f.Name+"=http://"+listeners[f.Name].Addr().String())
	}
	settings.FunctionURL = strings.Join(where, ",")
	stops := map[string]func() error{}
	behind := fn.NewRuntime(settings, s.runtime.Log, functions.All)
	front := fn.NewRuntime(settings, s.runtime.Log, functions.All)
	var err error
	for _, runtime := range []*fn.Runtime{behind, front} {
		runtime.Invoke, err = transport.Remote(settings.FunctionURL)
		must(s.t, err)
		s.t.Cleanup(runtime.Close)
	}
	for _, f := range functions.All {
		runtime := behind
		if f.Public {
			runtime = front
		}
		must(s.t, runtime.Host(f))
		stops[f.Name] = s.serve(listeners[f.Name], runtime, runtime.Here[f.Name])
	}
	s.runtime = behind
	s.url = "http://" + listeners[functions.GatewayName].Addr().String()
	return stops[functions.GatewayName], stops["stream"]
}

// A grant is on every tab of its user at once, by wakes and a nudge, with exactly
// the fields that the inbox has; nobody else sees it.
func TestStreamTells(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t)
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	user, other := s.userID(alice), s.userID(bob)
	tabs := []*follower{s.follow(alice), s.follow(alice), s.follow(alice)}
	bobs := s.follow(bob)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if got := tabs[0].header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	const grants = 9
	var took []time.Duration
	for n := range grants {
		wantStatus(t, s.grant(fmt.Sprint("k", n), user, sku(n)), http.StatusOK)
		answered := time.Now()
		for _, tab := range tabs {
			took = append(took, tab.until(n+1, streamPatience)[n].at.Sub(answered))
		}
	}
	slices.Sort(took)
	t.Logf("from a grant's answer to the stream: median %s, most %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("the median is %s", median)
	}
	wantStatus(t, s.grant("bob's", other, "item1"), http.StatusOK)
	if e := bobs.until(1, streamPatience); len(e) != 1 || !strings.Contains(e[0].data, other) {
		t.Errorf("bob is told %v", e)
	}
	inbox := s.call(http.MethodGet, "/v1/me/notifications", alice, "").json(t)["notifications"].([]any)
	slices.Reverse(inbox) // oldest first
	fields := []string{"attempt_count", "created_at", "event_id", "event_type", "notification_id", "payload", "read_at", "sent_at", "status"}
	for _, tab := range tabs {
		events := tab.got()
		if len(events) != grants || len(inbox) != grants {
			t.Fatalf("%d events, %d in the inbox", len(events), len(inbox))
		}
		for i, e := range events {
			var told map[string]any
			must(t, json.Unmarshal([]byte(e.data), &told))
			var names []string
			for name := range told {
				names = append(names, name)
			}
			slices.Sort(names)
			if !slices.Equal(names, fields) || !reflect.DeepEqual(told, inbox[i]) {
				t.Errorf("event %d: %s\ninbox: %v", i, e.data, inbox[i])
			}
			if e.name != "notification" || e.id != told["notification_id"] || told["status"] != "SENT" {
				t.Errorf("event %d: %q %q %v", i, e.name, e.id, told["status"])
			}
		}
		if retry := tab.retry; len(retry) != 4 || retry[0] != '1' {
			t.Errorf("retry: %q, want one to two seconds", retry)
		}
	}
	wantProblem(t, s.call(http.MethodGet, streamPath, "", ""), http.StatusUnauthorized, "token_missing")
}

// Who comes back with the id of the last event misses nothing, however much was
// sent meanwhile; what comes again has the same id.
func TestStreamResumes(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "LEASE_BATCH=40") // a batch is sent at one moment, and read as one
	alice := people.player(t, "alice")
	user := s.userID(alice)
	granted := 0
	tell := func(n int) {
		t.Helper()
		atOnce(n, func(i int) { s.grant(fmt.Sprint("k", granted+i), user, sku(granted+i)) })
		granted += n
		s.tellAll()
	}
	const before = 3 // in the inbox, and on no stream
	tell(before)
	seen := map[string]string{} // ids by item
	leave := func(f *follower) {
		t.Helper()
		f.hangUp()
		<-f.ended
		events := f.got()
		if len(idsOf(events)) != len(events) {
			t.Errorf("%d events of %d notifications on one stream", len(events), len(idsOf(events)))
		}
		for _, e := range events {
			item := itemOf(t, e)
			if seen[item] != "" && seen[item] != e.id {
				t.Errorf("%s came as %s and as %s", item, seen[item], e.id)
			}
			seen[item] = e.id
		}
	}
	has := func(f *follower) func() bool {
		return func() bool {
			items := map[string]bool{}
			for item := range seen {
				items[item] = true
			}
			for _, e := range f.got() {
				items[itemOf(t, e)] = true
			}
			for n := before; n < granted; n++ {
				if !items[sku(n)] {
					return false
				}
			}
			return true
		}
	}
	f := s.follow(alice)
	eventually(t, streamPatience, "a position where nothing was sent yet", func() bool { return strings.HasPrefix(f.position(), "t_") })
	leave(f)
	for _, step := range []struct {
		while int
		path  string // with the position in it, or ""
	}{
		{2, ""},
		{50, ""},
		{230, streamPath + "?last_event_id="}, // more than two pages, to a client that cannot send the header
		{1, ""},
	} {
		tell(step.while)
		if at := f.position(); step.path != "" {
			f = s.followAt(step.path+at, alice)
		} else {
			f = s.follow(alice, "Last-Event-ID: "+at)
		}
		eventually(t, lookEvery/2, fmt.Sprint("all that were sent while it was away, at once: ", step.while), has(f))
		tell(1)
		eventually(t, streamPatience, "one that is sent now", has(f))
		leave(f)
	}
}

// itemOf returns what an event tells of.
func itemOf(t testing.TB, e streamEvent) string {
	t.Helper()
	var told struct {
		Payload struct {
			Item string `json:"stock_keeping_unit"`
		}
	}
	must(t, json.Unmarshal([]byte(e.data), &told))
	return told.Payload.Item
}

// A Last-Event-ID that names nothing of the caller's opens a stream that begins now.
func TestStreamJunkPosition(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "STREAMS_PER_USER=100")
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	user, other := s.userID(alice), s.userID(bob)
	s.grant("before", user, "before")
	s.grant("bob's", other, "item1")
	s.tellAll()
	bobs := s.call(http.MethodGet, "/v1/me/notifications", bob, "").json(t)["notifications"].([]any)[0].(map[string]any)["notification_id"].(string)
	junk := []string{"x", "t_", "t_x", "t_1.5", "t_99999999999999999999", "n_", "n_zzz", bobs, strings.ToUpper(bobs), "0", "'; --", "\xff\xfe", "💥", strings.Repeat("9", 64)}
	var streams []*follower
	for _, id := range junk {
		streams = append(streams, s.follow(alice, "Last-Event-ID: "+id))
	}
	s.grant("after", user, "after")
	s.tellAll()
	for i, f := range streams {
		if e := f.until(1, streamPatience); len(e) != 1 || !strings.Contains(e[0].data, `"after"`) {
			t.Errorf("%q: %v", junk[i], e)
		}
	}
	wantProblem(t, s.call(http.MethodGet, streamPath, alice, "", "Last-Event-ID: "+strings.Repeat("n", 65)), http.StatusUnprocessableEntity, "request_invalid")
}

// A position in the far past gets everything again.
func TestStreamFromLongAgo(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice := people.player(t, "alice")
	user := s.userID(alice)
	s.grant("before", user, "before")
	s.tellAll()
	for _, id := range []string{"t_0", "t_1", "t_-1", "t_-99999999999999999", "t_-9223372036854775808"} {
		if e := s.follow(alice, "Last-Event-ID: "+id).until(1, streamPatience); len(e) != 1 || !strings.Contains(e[0].data, `"before"`) {
			t.Errorf("%s: %v", id, e)
		}
	}
}

// A position in the future, which no clock of ours made, is as good as none: the
// stream must not be silent until then.
func TestStreamFromTheFuture(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice := people.player(t, "alice")
	user := s.userID(alice)
	f := s.follow(alice, "Last-Event-ID: t_"+fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()))
	s.grant("after", user, "after")
	s.tellAll()
	f.until(1, 3*time.Second)
}

// A notification that is sent only at a later attempt comes after ones that are
// younger than it, also to who was away meanwhile.
func TestStreamTellsWhatWasSentLate(t *testing.T) {
	t.Parallel()
	var refusing atomic.Bool
	refusing.Store(true)
	receiver := &httptest.Server{Listener: kit.Listen(t), Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if refusing.Load() && strings.Contains(string(body), "slow") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}}
	receiver.Start()
	t.Cleanup(receiver.Close)
	s, people := withPlayers(t, "WAKES=false", "NOTIFICATION_CHANNEL=webhook", "WEBHOOK_URLS="+receiver.URL,
		"WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "WEBHOOK_ALLOW_PRIVATE=true", "LEASE_BACKOFF_BASE=10ms", "LEASE_BACKOFF_CAP=10ms")
	alice := people.player(t, "alice")
	user := s.userID(alice)
	staying, leaving := s.follow(alice), s.follow(alice)
	for _, item := range []string{"slow1", "quick1", "slow2", "quick2"} {
		s.grant(item, user, item)
		s.tellAll()
	}
	quick := leaving.until(2, streamPatience)
	if len(idsOf(quick)) != 2 || len(idsOf(staying.until(2, streamPatience))) != 2 {
		t.Fatalf("before the receiver takes the others: %v", quick)
	}
	leaving.hangUp()
	<-leaving.ended
	refusing.Store(false)
	eventually(t, streamPatience, "all are sent", func() bool {
		s.tryTick("deliver")
		return s.count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) == 4
	})
	back := s.follow(alice, "Last-Event-ID: "+leaving.position())
	eventually(t, streamPatience, "both have all four", func() bool {
		return len(idsOf(staying.got())) == 4 && len(idsOf(quick, back.got())) == 4
	})
	if late := staying.got()[3]; !strings.Contains(late.data, "slow") || late.id > quick[1].id {
		t.Errorf("the last one is %s, not older than %s: this test shows nothing", late.data, quick[1].id)
	}
}

// Without NATS, what is sent arrives by the look that every stream takes; when
// NATS is back, by a nudge again.
func TestStreamWithoutNATS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, err := dev.StartNATS(t.Context(), dev.NATSOptions{Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = own.Stop() })
	s, people := withPlayers(t, "WAKES=false", "NATS_URL="+own.URL())
	alice := people.player(t, "alice")
	user := s.userID(alice)
	f := s.follow(alice)
	s.grant("k1", user, "item1")
	s.tellAll()
	f.until(1, streamPatience)
	for n := range 3 { // accepted, and not sent yet
		s.grant(fmt.Sprint("meanwhile", n), user, sku(n))
	}
	s.tick("relay")
	s.tick("notify")
	must(t, own.Stop())
	s.tick("deliver")
	sent := time.Now()
	opened := s.follow(alice, "Last-Event-ID: "+f.position()) // without NATS, one can begin too
	opened.until(3, streamPatience)
	events := f.until(4, lookEvery+5*time.Second)
	t.Logf("without NATS it took %s", events[3].at.Sub(sent))
	again, err := dev.StartNATS(t.Context(), dev.NATSOptions{Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = again.Stop() })
	s.grant("back", user, "back")
	eventually(t, streamPatience, "the rest is sent", func() bool {
		for _, function := range []string{"relay", "notify", "deliver"} {
			s.tryTick(function)
		}
		return s.count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) == 5
	})
	f.until(5, streamPatience)
	eventually(t, streamPatience, "nudges come again", func() bool {
		n := len(f.got())
		s.grant(fmt.Sprint("again", n, time.Now()), user, "again")
		s.tellAll()
		told := time.Now()
		return f.until(n+1, streamPatience)[n].at.Sub(told) < time.Second
	})
	if !f.open() {
		t.Errorf("the stream ended: %v", f.end)
	}
}

// A stream ends in good order after STREAM_LIFETIME, and the client knows when and
// from where to come back.
func TestStreamLifetime(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "STREAM_LIFETIME=2s")
	alice := people.player(t, "alice")
	user := s.userID(alice)
	began := time.Now()
	f := s.follow(alice)
	s.grant("k1", user, "item1")
	s.tellAll()
	f.until(1, streamPatience)
	if err := f.wantEnd(streamPatience, "its lifetime is over"); err != nil {
		t.Errorf("it broke off: %v", err)
	}
	if took := time.Since(began); took < 1800*time.Millisecond || took > 5*time.Second {
		t.Errorf("it lasted %s", took)
	}
	if f.retry == "" || !strings.HasPrefix(f.position(), "n_") {
		t.Errorf("retry %q, id %q", f.retry, f.position())
	}
}

// A stream ends with what its caller proved themselves by.
func TestStreamEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	people := startDevIssuer(t, "http://"+listener.Addr().String(), time.Minute, true)
	s := start(t, listener, "OIDC_ISSUER="+people.URL(), "WAKES=false")
	cookie := func(p *person) string { return "Cookie: miniserver_session=" + p.cookie() }
	alice, again, bob := s.person(), s.person(), s.person()
	alice.signIn("alice", "/")
	again.signIn("alice", "/")
	bob.signIn("bob", "/")
	own, others, bobs := s.follow("", cookie(alice)), s.follow("", cookie(again)), s.follow("", cookie(bob))

	wantStatus(t, alice.do(http.MethodPost, "/logout", "", csrf), http.StatusNoContent)
	began := time.Now()
	if err := own.wantEnd(streamPatience, "she signed out"); err != nil {
		t.Errorf("it broke off: %v", err)
	}
	t.Logf("signing out ended the stream after %s", time.Since(began))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	if !others.open() || !bobs.open() {
		t.Error("other sessions' streams have ended")
	}
	must(t, people.EndSessions("alice"))
	began = time.Now()
	if err := others.wantEnd(streamPatience, "the issuer signed her out"); err != nil {
		t.Errorf("it broke off: %v", err)
	}
	t.Logf("the back channel ended the stream after %s", time.Since(began))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	// Its session goes on: it is still told.
	user := bob.do(http.MethodGet, "/v1/me", "").json(t)["user_id"].(string)
	s.writer = identity.Token(t, people.URL(), "purchase-service", "purchase-service-secret")
	s.grant("k1", user, "item1")
	s.tellAll()
	bobs.until(1, streamPatience)
}

// A stream that was opened with an access token ends when that expires.
func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	s.userID(people.player(t, "alice"))
	expires := time.Now().Add(3 * time.Second).Truncate(time.Second)
	f := s.follow(people.token(t, map[string]any{"sub": "alice", "exp": expires.Unix()}))
	if err := f.wantEnd(streamPatience, "the token has expired"); err != nil {
		t.Errorf("it broke off: %v", err)
	}
	if late := time.Since(expires); late < 0 || late > 2*time.Second {
		t.Errorf("it ended %s after the token", late)
	}
}

// A token that expires while the request's body comes in slowly opens no stream
// that outlives it.
func TestStreamOfATokenThatExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	s.userID(people.player(t, "alice"))
	expires := time.Now().Add(3 * time.Second).Truncate(time.Second)
	token := people.token(t, map[string]any{"sub": "alice", "exp": expires.Unix()})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1\r\n\r\n", streamPath, token)
	must(t, err)
	time.Sleep(time.Until(expires) + 500*time.Millisecond) // the clock is the signal
	_, err = fmt.Fprint(conn, "x")
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("%s: the stream of an expired token is still open after 5 s", answer.Status)
	}
}

// A process that shuts down ends its streams first, in good order, and does not
// wait for them: all functions in one, the stream's function alone, the gateway
// alone.
func TestStreamShutdown(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*system) func() error{
		"one process":     func(s *system) func() error { return s.served() },
		"stream function": func(s *system) func() error { _, stop := s.apart(); return stop },
		"gateway":         func(s *system) func() error { stop, _ := s.apart(); return stop },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, people := withPlayers(t, "WAKES=false")
			stop := stop(s)
			alice := people.player(t, "alice")
			s.userID(alice)
			var streams []*follower
			for range 8 {
				streams = append(streams, s.follow(alice))
			}
			began := time.Now()
			if err := stop(); err != nil {
				t.Error(err)
			}
			t.Logf("it took %s", time.Since(began))
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("it took %s", took)
			}
			for _, f := range streams {
				if err := f.wantEnd(time.Second, "the process has ended"); err != nil {
					t.Errorf("it broke off: %v", err)
				}
			}
		})
	}
}

// openUnread opens a stream and reads nothing of it but its beginning.
func (s *system) openUnread(token string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	must(s.t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", streamPath, token)
	must(s.t, err)
	must(s.t, conn.SetReadDeadline(time.Now().Add(streamPatience)))
	for begun, buffer := "", make([]byte, 256); !strings.Contains(begun, "retry:"); {
		n, err := conn.Read(buffer)
		must(s.t, err)
		begun += string(buffer[:n])
	}
}

// fill sends a user more than all buffers on the way to a reader hold.
func (s *system) fill(user string) (rows int) {
	s.t.Helper()
	const bytes = 10_000
	rows = 800
	_, err := s.pool.Exec(s.t.Context(), `
		INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, attempt_count, finished_at)
		SELECT gen_random_uuid(), gen_random_uuid(), $1, 'EntitlementGranted', jsonb_build_object('x', repeat('x', $3)), now(), 'SENT', 1, now() - i * interval '1 ms'
		FROM generate_series(1, $2) i`, user, rows, bytes)
	must(s.t, err)
	return rows
}

// A reader that does not read is cut off, and neither holds up the others nor the
// end of the process.
func TestStreamThatNobodyReads(t *testing.T) {
	t.Parallel()
	names := []string{"one process", "across processes"}
	systems, stops := map[string]*system{}, map[string]func() error{}
	for _, name := range names {
		s, people := withPlayers(t, "WAKES=false", "SHUTDOWN_GRACE=1s")
		systems[name], stops[name] = s, s.served()
		if name != names[0] {
			stops[name], _ = s.apart()
		}
		alice := people.player(t, "alice")
		user := s.userID(alice)
		s.openUnread(alice)
		f := s.follow(alice)
		rows := s.fill(user)
		s.grant("k1", user, "item1")
		s.tellAll()
		f.until(rows+1, 2*streamPatience)
		f.hangUp()
	}
	deadline := time.Now().Add(15 * time.Second)
	for _, name := range names {
		ended := func() bool {
			return strings.Count(systems[name].log.String(), `"route":"GET /v1/me/notifications/stream"`) == 2
		}
		for !ended() && time.Now().Before(deadline) {
			time.Sleep(50 * time.Millisecond)
		}
		if !ended() {
			t.Errorf("%s: it is not cut off", name)
		}
		if err := stops[name](); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// 200 users follow one process while all of them are granted something: everybody
// is told what is theirs, and grants go on.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t)
	s.served()
	const users, each = 200, 3
	ids, streams := make([]string, users), make([]*follower, users)
	many := func(do func(i int)) {
		atOnce(8, func(worker int) {
			for i := worker; i < users; i += 8 {
				do(i)
			}
		})
	}
	many(func(i int) {
		token := people.player(t, fmt.Sprint("player", i))
		ids[i] = s.userID(token)
		streams[i] = s.follow(token)
	})
	var mutex sync.Mutex
	var took, told []time.Duration
	answered := map[string]time.Time{}
	began := time.Now()
	for n := range each {
		many(func(i int) {
			at := time.Now()
			key := fmt.Sprint(ids[i], n)
			a := s.grant(key, ids[i], key)
			mutex.Lock()
			defer mutex.Unlock()
			took, answered[key] = append(took, time.Since(at)), time.Now()
			if a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	t.Logf("%d grants with %d streams: %s", users*each, users, time.Since(began))
	for i, f := range streams {
		for _, e := range f.until(each, streamPatience) {
			key := itemOf(t, e)
			if !strings.HasPrefix(key, ids[i]) {
				t.Fatalf("%s is told %s", ids[i], e.data)
			}
			told = append(told, e.at.Sub(answered[key]))
		}
		if got := f.got(); len(got) != each || len(idsOf(got)) != each || !f.open() {
			t.Errorf("%d events of %d, open %t", len(got), each, f.open())
		}
	}
	slices.Sort(took)
	slices.Sort(told)
	t.Logf("a grant: median %s, 99%% %s; until it is on the stream: median %s, 99%% %s, most %s",
		took[len(took)/2], took[len(took)*99/100], told[len(told)/2], told[len(told)*99/100], told[len(told)-1])
	if most := told[len(told)-1]; most > lookEvery/2 {
		t.Errorf("one came only %s after its grant: nobody nudged", most)
	}
}

// Gateway and functions as processes of their own, for longer than any timeout of
// their servers: the stream goes on, and still tells at once.
func TestStreamAcrossProcesses(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes 45 s")
	}
	s, people := withPlayers(t)
	s.apart()
	alice := people.token(t, map[string]any{"sub": "alice", "exp": time.Now().Add(10 * time.Minute).Unix(), "realm_access": map[string]any{"roles": []string{"player"}}})
	s.writer = people.token(t, map[string]any{"exp": time.Now().Add(10 * time.Minute).Unix()})
	user := s.userID(alice)
	f := s.follow(alice)
	began := time.Now()
	var took []time.Duration
	for n := 0; time.Since(began) < 45*time.Second; n++ {
		wantStatus(t, s.grant(fmt.Sprint("k", n), user, sku(n)), http.StatusOK)
		answered := time.Now()
		took = append(took, f.until(n+1, streamPatience)[n].at.Sub(answered))
		// Quiet for longer than a look, once; the clock is what this test is about.
		pause := 3 * time.Second
		if n == 1 {
			pause = 2 * lookEvery
		}
		select {
		case <-f.ended:
			t.Fatalf("the stream ended after %s: %v", time.Since(began), f.end)
		case <-time.After(pause):
		}
	}
	slices.Sort(took)
	t.Logf("from a grant's answer to the stream: median %s, most %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("the median is %s", median)
	}
	if e := f.got(); len(e) != len(idsOf(e)) {
		t.Errorf("%d events of %d notifications", len(e), len(idsOf(e)))
	}
}

// Behind a transaction pooler every statement runs in another mode of the protocol.
func TestStreamInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, people := withPlayers(t, "WAKES=false", "POSTGRES_EXEC_MODE="+mode)
			alice := people.player(t, "alice")
			user := s.userID(alice)
			f := s.follow(alice)
			s.grant("k1", user, "item1")
			s.tellAll()
			last := f.until(1, streamPatience)[0].id
			s.follow(alice, "Last-Event-ID: "+last).until(1, streamPatience)
			read := s.call(http.MethodPost, "/v1/me/notifications/"+last+"/read", alice, "")
			if read.status != http.StatusOK || read.json(t)["read_at"] == nil {
				t.Errorf("%d %s", read.status, read.body)
			}
		})
	}
}
