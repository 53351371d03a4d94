package functions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/testkit"
)

const ticketsPath = "/v1/matchmaking/tickets"

func queuePath(mode string) string { return "/v1/matchmaking/queues/" + mode + "/tickets" }

// join asks for a ticket with the key "k".
func (s *system) join(token, mode, attributes string) answer {
	s.t.Helper()
	return s.call(http.MethodPost, queuePath(mode), token, `{"party_size":1,"idempotency_key":"k","attributes":`+attributes+`}`)
}

// ticketOf joins and returns the ticket's id.
func (s *system) ticketOf(token, mode, attributes string) string {
	s.t.Helper()
	a := s.join(token, mode, attributes)
	wantStatus(s.t, a, http.StatusCreated)
	return a.json(s.t)["ticket_id"].(string)
}

// ticket reads a ticket.
func (s *system) ticket(token, id string) map[string]any {
	s.t.Helper()
	a := s.call(http.MethodGet, ticketsPath+"/"+id, token, "")
	wantStatus(s.t, a, http.StatusOK)
	return a.json(s.t)
}

// matchesTold are the payloads of a player's notifications of matches.
func (s *system) matchesTold(token string) (payloads []map[string]any) {
	s.t.Helper()
	a := s.call(http.MethodGet, "/v1/me/notifications", token, "")
	wantStatus(s.t, a, http.StatusOK)
	for _, n := range a.json(s.t)["notifications"].([]any) {
		if one := n.(map[string]any); one["event_type"] == "MatchMade" {
			payloads = append(payloads, one["payload"].(map[string]any))
		}
	}
	return payloads
}

// redisClient is a client on the system's Redis.
func (s *system) redisClient() *redis.Client {
	s.t.Helper()
	options, err := redis.ParseURL(s.redis.URL())
	must(s.t, err)
	client := redis.NewClient(options)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Two players join, and each is told of the other and of where they meet: in the
// ticket, in the overview, in the inbox, and live.
func TestTwoPlayersMeet(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t)
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	live := s.follow(alice)
	a := s.ticketOf(alice, "casual", `{"region":"eu"}`)
	waiting := s.ticket(alice, a)
	if waiting["status"] != "QUEUED" || waiting["position"] != 1.0 || waiting["reason"].(map[string]any)["code"] != "alone" {
		t.Errorf("%v", waiting)
	}
	b := s.ticketOf(bob, "casual", `{}`)
	eventually(t, 10*time.Second, "they have a session", func() bool { return s.ticket(bob, b)["session"] != nil })
	one, two := s.ticket(alice, a), s.ticket(bob, b)
	ids := map[string]string{alice: s.userID(alice), bob: s.userID(bob)}
	if one["status"] != "MATCHED" || one["match_id"] != two["match_id"] || fmt.Sprint(one["peer_user_ids"]) != "["+ids[bob]+"]" ||
		fmt.Sprint(two["peer_user_ids"]) != "["+ids[alice]+"]" || one["session"].(map[string]any)["address"] != "localhost" {
		t.Errorf("%v and %v", one, two)
	}
	for token, ticket := range map[string]map[string]any{alice: one, bob: two} {
		eventually(t, 10*time.Second, "they are told", func() bool { return len(s.matchesTold(token)) > 0 })
		told := s.matchesTold(token)
		if len(told) != 1 || told[0]["match_id"] != ticket["match_id"] || told[0]["ticket_id"] != ticket["ticket_id"] || told[0]["user_id"] != ids[token] ||
			fmt.Sprint(told[0]["peer_user_ids"]) != fmt.Sprint(ticket["peer_user_ids"]) || fmt.Sprint(told[0]["session"]) != fmt.Sprint(ticket["session"]) {
			t.Errorf("told %v of %v", told, ticket)
		}
		overview := s.call(http.MethodGet, overviewPath, token, "").json(t)
		list := overview["matchmaking"].(map[string]any)["tickets"].([]any)
		if len(list) != 1 || list[0].(map[string]any)["match_id"] != ticket["match_id"] {
			t.Errorf("overview %v", list)
		}
	}
	if e := live.until(1, 10*time.Second)[0]; !strings.Contains(e.data, one["match_id"].(string)) {
		t.Errorf("live: %s", e.data)
	}
	cancel := s.call(http.MethodDelete, ticketsPath+"/"+a, alice, "")
	wantProblem(t, cancel, http.StatusConflict, "ticket_matched")
}

// A waiting player follows the ticket over the live stream until it ends.
func TestTicketOverTheStream(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t)
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	a := s.ticketOf(alice, "casual", `{}`)
	status := func(e streamEvent) string {
		var ticket struct {
			Status  string
			Session any
		}
		if e.name != "ticket" || json.Unmarshal([]byte(e.data), &ticket) != nil {
			return e.name
		}
		return fmt.Sprint(ticket.Status, " ", ticket.Session != nil)
	}
	live := s.followAt(streamPath+"?ticket_id="+a, alice)
	if e := live.until(1, 10*time.Second)[0]; status(e) != "QUEUED false" || !strings.Contains(e.data, `"code":"alone"`) {
		t.Errorf("%+v", e)
	}
	before := live.position()
	s.ticketOf(bob, "casual", `{}`)
	eventually(t, 10*time.Second, "the match is told", func() bool {
		for _, e := range live.got() {
			if status(e) == "MATCHED true" {
				return true
			}
		}
		return false
	})
	for _, e := range live.got() {
		if e.name == "ticket" && e.id != before && strings.HasPrefix(e.id, "casual") {
			t.Errorf("a ticket has a position: %+v", e)
		}
	}
	c := s.ticketOf(alice, "rank", `{"skill":1}`)
	second := s.followAt(streamPath+"?ticket_id="+c, alice)
	second.until(1, 10*time.Second)
	wantStatus(t, s.call(http.MethodDelete, ticketsPath+"/"+c, alice, ""), http.StatusOK)
	eventually(t, 10*time.Second, "it is cancelled", func() bool { got := second.got(); return status(got[len(got)-1]) == "CANCELLED false" })
	other := s.call(http.MethodGet, streamPath+"?ticket_id="+c, bob, "")
	wantProblem(t, other, http.StatusNotFound, "ticket_not_found")
}

// What cannot be a join is refused, and leaves nothing behind.
func TestJoinInput(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice := people.player(t, "alice")
	s.userID(alice)
	client := s.redisClient()
	many := make([]string, 17)
	for i := range many {
		many[i] = fmt.Sprintf(`"a%d":1`, i)
	}
	body := func(attributes string) string { return `{"idempotency_key":"k","attributes":` + attributes + `}` }
	for name, c := range map[string]struct {
		mode, body, headers string
		status              int
		code                string
	}{
		"unknown mode":         {"ranked", `{"idempotency_key":"k"}`, "", 404, "mode_not_found"},
		"a mode in capitals":   {"Casual", `{"idempotency_key":"k"}`, "", 404, "mode_not_found"},
		"a long mode":          {strings.Repeat("a", 33), `{"idempotency_key":"k"}`, "", 422, "request_invalid"},
		"party of two":         {"casual", `{"party_size":2,"idempotency_key":"k"}`, "", 422, "request_invalid"},
		"party of none":        {"casual", `{"party_size":0,"idempotency_key":"k"}`, "", 422, "request_invalid"},
		"party as text":        {"casual", `{"party_size":"1","idempotency_key":"k"}`, "", 422, "request_invalid"},
		"party and a half":     {"casual", `{"party_size":1.5,"idempotency_key":"k"}`, "", 422, "request_invalid"},
		"no key":               {"casual", `{"party_size":1}`, "", 400, "idempotency_key_missing"},
		"an empty key":         {"casual", `{"idempotency_key":""}`, "", 400, "idempotency_key_missing"},
		"a long key":           {"casual", `{"idempotency_key":"` + strings.Repeat("k", 256) + `"}`, "", 400, "idempotency_key_invalid"},
		"a key with a break":   {"casual", `{"idempotency_key":"a\nb"}`, "", 400, "idempotency_key_invalid"},
		"a key that is none":   {"casual", `{"idempotency_key":7}`, "", 422, "request_invalid"},
		"two keys":             {"casual", `{"idempotency_key":"k"}`, "Idempotency-Key: other", 400, "idempotency_key_invalid"},
		"an unknown field":     {"casual", `{"idempotency_key":"k","mode":"rank"}`, "", 422, "request_invalid"},
		"a field in capitals":  {"casual", `{"idempotency_key":"k","Attributes":{}}`, "", 422, "request_invalid"},
		"a field twice":        {"casual", `{"idempotency_key":"k","party_size":1,"party_size":1}`, "", 400, "request_malformed"},
		"data behind it":       {"casual", `{"idempotency_key":"k"} x`, "", 400, "request_malformed"},
		"attributes a list":    {"casual", body(`[]`), "", 422, "request_invalid"},
		"an attribute a list":  {"casual", body(`{"region":["eu"]}`), "", 422, "attributes_invalid"},
		"an attribute null":    {"casual", body(`{"region":null}`), "", 422, "attributes_invalid"},
		"an attribute true":    {"casual", body(`{"region":true}`), "", 422, "attributes_invalid"},
		"an attribute nested":  {"casual", body(`{"region":{"a":1}}`), "", 422, "attributes_invalid"},
		"a huge number":        {"casual", body(`{"a":1e400}`), "", 422, "attributes_invalid"},
		"a large number":       {"casual", body(`{"a":1e16}`), "", 422, "attributes_invalid"},
		"a long text":          {"casual", body(`{"a":"` + strings.Repeat("x", 129) + `"}`), "", 422, "attributes_invalid"},
		"a text with a tab":    {"casual", body(`{"a":"x\ty"}`), "", 422, "attributes_invalid"},
		"a name with a space":  {"casual", body(`{"a b":1}`), "", 422, "attributes_invalid"},
		"an empty name":        {"casual", body(`{"":1}`), "", 422, "attributes_invalid"},
		"too many":             {"casual", body(`{` + strings.Join(many, ",") + `}`), "", 422, "attributes_invalid"},
		"no skill":             {"rank", body(`{"region":"eu"}`), "", 422, "attributes_invalid"},
		"skill as text":        {"rank", body(`{"skill":"1500"}`), "", 422, "attributes_invalid"},
		"skill below 0":        {"rank", body(`{"skill":-1}`), "", 422, "attributes_invalid"},
		"skill beyond 10000":   {"rank", body(`{"skill":10001}`), "", 422, "attributes_invalid"},
		"not JSON":             {"casual", `idempotency_key=k`, "", 400, "request_malformed"},
		"too large":            {"casual", `{"idempotency_key":"` + strings.Repeat("k", 65<<10) + `"}`, "", 413, "body_too_large"},
		"another content type": {"casual", `{"idempotency_key":"k"}`, "Content-Type: text/plain", 415, "content_type_unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if c.headers != "" {
				headers = append(headers, c.headers)
			}
			wantProblem(t, s.call(http.MethodPost, queuePath(c.mode), alice, c.body, headers...), c.status, c.code)
		})
	}
	keys, err := client.Keys(t.Context(), "mm:*").Result()
	must(t, err)
	for _, key := range keys {
		t.Errorf("%s is left", key)
	}
	for _, id := range []string{"x", "casual_x", "m_01h455vb4pex5vsknk084sn02q", "casual_01h455vb4pex5vsknk084sn02q", strings.Repeat("a", 64)} {
		wantProblem(t, s.call(http.MethodGet, ticketsPath+"/"+id, alice, ""), 404, "ticket_not_found")
		wantProblem(t, s.call(http.MethodDelete, ticketsPath+"/"+id, alice, ""), 404, "ticket_not_found")
	}
	wantProblem(t, s.call(http.MethodGet, ticketsPath+"/"+strings.Repeat("a", 65), alice, ""), 422, "request_invalid")
}

// However often and however a join is sent, one key is one ticket.
func TestJoinKeys(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice, bob := people.player(t, "alice"), people.player(t, "bob")
	s.userID(alice)
	var mutex sync.Mutex
	bodies, replayed := map[string]int{}, 0
	atOnce(64, func(int) {
		a := s.join(alice, "casual", `{"b":2,"a":1}`)
		mutex.Lock()
		defer mutex.Unlock()
		bodies[fmt.Sprint(a.status, " ", string(a.body))]++
		if a.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	})
	if len(bodies) != 1 || replayed != 63 {
		t.Fatalf("%d replays, %v", replayed, bodies)
	}
	again := s.call(http.MethodPost, queuePath("casual"), alice, `{ "attributes" : {"a":1.0, "b":2} , "idempotency_key":"k"}`, "Idempotency-Key: \"k\"")
	wantStatus(t, again, http.StatusCreated)
	if bodies["201 "+string(again.body)] != 64 {
		t.Errorf("%s", again.body)
	}
	wantProblem(t, s.join(alice, "casual", `{"a":2}`), http.StatusConflict, "idempotency_key_reused")
	second := s.call(http.MethodPost, queuePath("casual"), alice, `{"idempotency_key":"k2"}`)
	wantProblem(t, second, http.StatusConflict, "ticket_queued")
	if !strings.Contains(string(second.body), again.json(t)["ticket_id"].(string)) {
		t.Errorf("it does not name the first: %s", second.body)
	}
	wantStatus(t, s.join(bob, "casual", `{"a":2}`), http.StatusCreated)
	wantStatus(t, s.join(alice, "rank", `{"skill":1}`), http.StatusCreated)
	if report := s.tick("match"); report.Done != 2 {
		t.Errorf("%+v", report)
	}
}

// Without Redis nobody joins, and nothing is half done: the same request joins once
// Redis is back.
func TestMatchmakingWithoutRedis(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice := people.player(t, "alice")
	s.userID(alice)
	must(t, s.redis.Stop())
	for _, a := range []answer{
		s.join(alice, "casual", `{}`),
		s.call(http.MethodGet, ticketsPath, alice, ""),
		s.call(http.MethodDelete, ticketsPath+"/casual_01h455vb4pex5vsknk084sn02q", alice, ""),
	} {
		wantProblem(t, a, http.StatusServiceUnavailable, "unavailable")
		if a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	s.redis = testkit.StartRedis(t, s.dir)
	var id string
	eventually(t, 20*time.Second, "the same request joins", func() bool {
		a := s.join(alice, "casual", `{}`)
		if a.status == http.StatusCreated {
			id, _ = a.json(t)["ticket_id"].(string)
		}
		return id != ""
	})
	if list := s.call(http.MethodGet, ticketsPath, alice, "").json(t)["tickets"].([]any); len(list) != 1 || list[0].(map[string]any)["ticket_id"] != id {
		t.Errorf("%v", list)
	}
	if n := s.redisClient().ZCard(t.Context(), "mm:queue:{casual}").Val(); n != 1 {
		t.Errorf("%d wait", n)
	}
}

// Redis is killed in the middle of joins and passes. Whoever is matched in the end is
// so with one other, and both are told once.
func TestRedisKilledWhileMatching(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "LIMIT_PLAYER_BURST=100000")
	const players = 40
	tokens, tickets := make([]string, players), make([]string, players)
	for i := range players {
		tokens[i] = people.player(t, fmt.Sprint("player", i))
		s.userID(tokens[i])
	}
	seen := make([]string, players) // the match that an answer told
	var group sync.WaitGroup
	stop := make(chan struct{})
	defer group.Wait()
	stopOnce := sync.OnceFunc(func() { close(stop) })
	defer stopOnce()
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = s.tickQuietly("match")
				time.Sleep(time.Millisecond)
			}
		}
	})
	var joining sync.WaitGroup
	for i := range players {
		joining.Go(func() {
			time.Sleep(time.Duration(i) * 5 * time.Millisecond)
			for deadline := time.Now().Add(40 * time.Second); tickets[i] == "" && time.Now().Before(deadline); {
				if a := s.join(tokens[i], "casual", `{}`); a.status == http.StatusCreated {
					tickets[i], _ = a.json(t)["ticket_id"].(string)
				} else {
					time.Sleep(20 * time.Millisecond)
				}
			}
			if a := s.call(http.MethodGet, ticketsPath+"/"+tickets[i], tokens[i], ""); a.status == http.StatusOK {
				seen[i], _ = a.json(t)["match_id"].(string)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	pid, err := os.ReadFile(filepath.Join(s.dir, "redis.pid"))
	must(t, err)
	process, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	must(t, err)
	must(t, syscall.Kill(process, syscall.SIGKILL))
	must(t, s.redis.Stop()) // lets go of what is gone
	time.Sleep(50 * time.Millisecond)
	address := s.redis.URL()
	s.redis = testkit.StartRedis(t, s.dir)
	if s.redis.URL() != address {
		t.Fatalf("Redis came back at another address")
	}
	joining.Wait()
	// Redis writes its log behind its answers while the disk is busy, so some of the
	// last second may be lost: that shows as 404, and the players join again.
	lost := 0
	eventually(t, 30*time.Second, "all are matched", func() bool {
		waiting := 0
		for i := range players {
			switch a := s.call(http.MethodGet, ticketsPath+"/"+tickets[i], tokens[i], ""); {
			case a.status == http.StatusNotFound:
				lost++
				seen[i] = ""
				if a := s.join(tokens[i], "casual", `{}`); a.status == http.StatusCreated {
					tickets[i], _ = a.json(t)["ticket_id"].(string)
				}
				waiting++
			case a.status != http.StatusOK || a.json(t)["status"] != "MATCHED":
				waiting++
			}
		}
		return waiting == 0
	})
	t.Logf("%d tickets were lost", lost)
	stopOnce()
	group.Wait()
	eventually(t, 20*time.Second, "all is told", func() bool { _, err := s.tickQuietly("announce"); return err == nil })
	for range 3 {
		s.tick("announce")
		s.tick("notify")
		s.tick("deliver")
	}
	matches := map[string][]int{}
	for i := range players {
		ticket := s.ticket(tokens[i], tickets[i])
		match := ticket["match_id"].(string)
		matches[match] = append(matches[match], i)
		if told := s.matchesTold(tokens[i]); len(told) != 1 || told[0]["match_id"] != match {
			t.Errorf("player %d of %s is told %v", i, match, told)
		}
	}
	for match, in := range matches {
		if len(in) != 2 {
			t.Errorf("%s has players %v", match, in)
		}
	}
	for i := range players {
		// A match that was lost is lost to both.
		if in := matches[seen[i]]; len(in) > 0 && !slices.Contains(in, i) {
			t.Errorf("player %d was answered %s, and %v are in it", i, seen[i], in)
		}
	}
}

func (s *system) tickQuietly(function string) (status int, err error) {
	request, err := http.NewRequest(http.MethodPost, "http://"+function+"/tick", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := s.runtime.Invoke.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, fmt.Errorf("tick of %s: %s", function, response.Status)
	}
	return response.StatusCode, nil
}

// meet matches alice and bob without telling anybody.
func (s *system) meet(people *signedIssuer) (alice, bob string) {
	s.t.Helper()
	alice, bob = people.player(s.t, "alice"), people.player(s.t, "bob")
	s.ticketOf(alice, "casual", `{}`)
	s.ticketOf(bob, "casual", `{}`)
	if report := s.tick("match"); report.Done != 2 {
		s.t.Fatalf("%+v", report)
	}
	return alice, bob
}

// The matcher dies after the match: whoever comes next tells it. So does the worker
// that claimed it and died: another gets it when its lease is over, not before.
func TestMatchOutlivesItsWorkers(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false")
	alice, bob := s.meet(people)
	client := s.redisClient()
	stream := "mm:events:{casual}"
	must(t, client.XGroupCreateMkStream(t.Context(), stream, "announce", "0").Err())
	claimed, err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "announce", Consumer: "dead", Streams: []string{stream, ">"}}).Result()
	must(t, err)
	if report := s.tick("announce"); report.Claimed != 0 {
		t.Fatalf("it was taken from its holder: %+v", report)
	}
	// As if the lease were over.
	entry := claimed[0].Messages[0].ID
	must(t, client.Do(t.Context(), "XCLAIM", stream, "announce", "dead", 0, entry, "IDLE", 60_000, "JUSTID").Err())
	if report := s.tick("announce"); report.Done != 1 {
		t.Fatalf("%+v", report)
	}
	// It published and died before it acknowledged: the broker gets it twice.
	must(t, client.XGroupDestroy(t.Context(), stream, "announce").Err())
	if report := s.tick("announce"); report.Done != 1 {
		t.Fatalf("again: %+v", report)
	}
	for range 2 {
		s.tick("notify")
		s.tick("deliver")
	}
	for _, token := range []string{alice, bob} {
		if told := s.matchesTold(token); len(told) != 1 {
			t.Errorf("told %v", told)
		}
	}
}

// The broker loses its store after it took a match: it is told all the same, once,
// and forgotten when it has arrived.
func TestMatchLostByTheBroker(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "WAKES=false", "RECONCILE_AFTER=1ms")
	alice, bob := s.meet(people)
	s.tick("announce")
	js, closeIt := stream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	must(t, js.DeleteStream(ctx, msjetstream.StreamName(event.MatchmakingSubject)))
	if report := s.tick("notify"); report.Claimed != 0 {
		t.Fatalf("notify: %+v", report)
	}
	if report := s.tick("reconcile"); report.Retried != 1 {
		t.Fatalf("reconcile: %+v", report)
	}
	if report := s.tick("announce"); report.Done != 1 {
		t.Fatalf("announce: %+v", report)
	}
	info, err := js.Stream(ctx, msjetstream.StreamName(event.MatchmakingSubject))
	must(t, err)
	if n := info.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d messages", n)
	}
	s.tick("notify")
	s.tick("deliver")
	if report := s.tick("reconcile"); report.Done != 1 || report.Retried != 0 {
		t.Errorf("reconcile again: %+v", report)
	}
	if n := s.redisClient().XLen(t.Context(), "mm:events:{casual}").Val(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	for _, token := range []string{alice, bob} {
		if told := s.matchesTold(token); len(told) != 1 {
			t.Errorf("told %v", told)
		}
	}
}
