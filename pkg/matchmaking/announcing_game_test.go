package matchmaking_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	matchmakingv1 "github.com/miniserversystem/miniserver/proto/miniserver/matchmaking/v1"
	"github.com/miniserversystem/miniserver/test/kit"
)

// game is a match that was made, as its players know it.
type game struct {
	id, event, mode string
	users, tickets  [2]string
	entry           string // the id of the stream entry that holds it
}

var gameNumber struct {
	sync.Mutex
	n int
}

// play makes a match of two players, in an entry of its own.
func (f *announcing) play(mode string) game {
	f.t.Helper()
	return f.playMany(mode, 1)[0]
}

// playMany makes n matches in one entry.
func (f *announcing) playMany(mode string, n int) []game {
	f.t.Helper()
	games := make([]game, n)
	for i := range games {
		gameNumber.Lock()
		gameNumber.n++
		number := gameNumber.n
		gameNumber.Unlock()
		g := &games[i]
		g.mode = mode
		for j := range g.users {
			g.users[j] = fmt.Sprintf("u_%d_%d", number, j)
			g.tickets[j] = f.join(g.users[j], mode, `{"skill":1}`)
		}
	}
	pass := f.match(mode)
	if len(pass.Matches) != n {
		f.t.Fatalf("the pass did %+v, want %d matches", pass, n)
	}
	entries := f.client.XRevRangeN(f.t.Context(), "mm:events:{"+mode+"}", "+", "-", 1).Val()
	for i := range games {
		g := &games[i]
		g.id, g.entry = f.get(g.users[0], g.tickets[0]).MatchID, entries[0].ID
		if other := f.get(g.users[1], g.tickets[1]).MatchID; other != g.id || g.id == "" {
			f.t.Fatalf("%+v are in matches %q and %q, want one", g.users, g.id, other)
		}
		value, _ := entries[0].Values[g.id].(string)
		g.event, _, _ = strings.Cut(value, "\n")
	}
	return games
}

// message is a message in the broker's stream.
type message struct {
	dedup, id, key string
	made           *matchmakingv1.MatchMade
}

// messages returns the messages of a match, or all if match is "".
func (f *announcing) messages(match string) []message {
	f.t.Helper()
	s, err := f.js.Stream(f.t.Context(), stream)
	kit.Must(f.t, err)
	info, err := s.Info(f.t.Context())
	kit.Must(f.t, err)
	var found []message
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := s.GetMsg(f.t.Context(), seq)
		kit.Must(f.t, err)
		made := &matchmakingv1.MatchMade{}
		kit.Must(f.t, proto.Unmarshal(m.Data, made))
		if match == "" || made.GetMatchId() == match {
			found = append(found, message{m.Header.Get(natsjs.MsgIDHeader), m.Header.Get("ce-id"), m.Header.Get("ce-subject"), made})
		}
	}
	return found
}

// isAnnounced fails the test unless the match was announced once, with the session that
// both tickets have.
func (f *announcing) isAnnounced(g game) *matchmaking.Session {
	f.t.Helper()
	messages := f.messages(g.id)
	if len(messages) != 1 {
		f.t.Fatalf("%s is in the stream %d times, want 1", g.id, len(messages))
	}
	m, one, two := messages[0], f.get(g.users[0], g.tickets[0]), f.get(g.users[1], g.tickets[1])
	var players []string
	for _, p := range m.made.GetPlayers() {
		players = append(players, p.GetUserId(), p.GetTicketId())
	}
	if m.id != g.event || m.key != g.id || m.made.GetEventId() != g.event || m.made.GetEventType() != "MatchMade" || m.made.GetMode() != g.mode ||
		m.made.GetOccurredAt() != textOf(f.t, one.MatchedAt) || !slices.Equal(players, []string{g.users[0], g.tickets[0], g.users[1], g.tickets[1]}) {
		f.t.Errorf("%+v is announced as %+v", g, m)
	}
	a, _ := json.Marshal(one.Session)
	b, _ := json.Marshal(two.Session)
	if string(a) != string(b) || one.SessionError != two.SessionError || m.made.GetSessionError() != one.SessionError ||
		m.made.GetSession().GetServer() != server(one.Session) || (one.Session == nil) != (m.made.GetSession() == nil) {
		f.t.Errorf("%s: the tickets have %s %q and %s %q, but %+v %q is announced", g.id, a, one.SessionError, b, two.SessionError, m.made.GetSession(), m.made.GetSessionError())
	}
	return one.Session
}

// textOf returns a time as a ticket shows it in JSON.
func textOf(t testing.TB, at time.Time) string {
	t.Helper()
	text, err := json.Marshal(at)
	kit.Must(t, err)
	return strings.Trim(string(text), `"`)
}

func server(s *matchmaking.Session) string {
	if s == nil {
		return ""
	}
	return s.Server
}

// claimed returns the entries of a mode that workers have claimed and not acknowledged.
func (f *announcing) claimed(mode string) []redis.XPendingExt {
	f.t.Helper()
	list, err := f.client.XPendingExt(f.t.Context(), &redis.XPendingExtArgs{Stream: "mm:events:{" + mode + "}", Group: "announce", Start: "-", End: "+", Count: 1000}).Result()
	if err != nil && !strings.HasPrefix(err.Error(), "NOGROUP") && !errors.Is(err, redis.Nil) {
		f.t.Fatal(err)
	}
	return list
}

// leasesEnd makes all claims of a mode a minute old, so that their leases are over.
func (f *announcing) leasesEnd(mode string) {
	f.t.Helper()
	for _, p := range f.claimed(mode) {
		kit.Must(f.t, f.client.Do(f.t.Context(), "XCLAIM", "mm:events:{"+mode+"}", "announce", p.Consumer, 0, p.ID, "IDLE", 60_000, "JUSTID").Err())
	}
}

func (f *announcing) entries(mode string) []redis.XMessage {
	f.t.Helper()
	list, err := f.client.XRange(f.t.Context(), "mm:events:{"+mode+"}", "-", "+").Result()
	kit.Must(f.t, err)
	return list
}
