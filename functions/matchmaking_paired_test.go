package functions_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"
)

// paired joins two players and pairs them by a matcher that wakes nobody: it is
// killed right then. It returns their user ids.
func (s *system) paired(people *signedIssuer, client redis.UniversalClient, one, two string) [2]string {
	s.t.Helper()
	var users [2]string
	for i, name := range []string{one, two} {
		token := people.player(s.t, name)
		s.joined(token, "casual", "k1", `{}`)
		users[i] = s.userID(token)
	}
	pass, err := s.store(client).Match(s.t.Context(), "casual", 1)
	must(s.t, err)
	if len(pass.Matches) != 1 {
		s.t.Fatalf("%+v", pass)
	}
	return users
}

// wantTold wants exactly one notification of one match for each of two users, sent.
func (s *system) wantTold(users [2]string) {
	s.t.Helper()
	const sql = `SELECT count(*) FROM notification.notifications WHERE event_type = 'MatchMade' AND status = 'SENT' AND user_id = $1 AND payload->'peer_user_ids' = jsonb_build_array($2::text)
		AND payload->'session'->>'address' = 'localhost'`
	all := `SELECT count(*) FROM notification.notifications WHERE event_type = 'MatchMade' AND user_id = $1`
	for i, user := range users {
		if told, n := s.count(sql, user, users[1-i]), s.count(all, user); told != 1 || n != 1 {
			s.t.Errorf("%s is told %d times, %d of them of the match with %s", user, n, told, users[1-i])
		}
	}
}

// untold wants that nobody is told yet.
func (s *system) untold(users [2]string) {
	s.t.Helper()
	if n := s.count(`SELECT count(*) FROM notification.notifications WHERE user_id = ANY($1)`, users[:]); n != 0 {
		s.t.Fatalf("%d are told already: this test shows nothing", n)
	}
}

// leasesPass makes it later for those who have claimed matches: longer ago than any
// lease lasts.
func (s *system) leasesPass(client redis.UniversalClient) {
	ctx := context.Background()
	for _, mode := range []string{"casual", "rank"} {
		key := "mm:events:{" + mode + "}"
		claimed, _ := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: "announce", Start: "-", End: "+", Count: 1000}).Result()
		for _, entry := range claimed {
			_ = client.Do(ctx, "XCLAIM", key, "announce", entry.Consumer, 0, entry.ID, "IDLE", time.Minute.Milliseconds(), "JUSTID").Err()
		}
	}
}

// waitingEntries counts the entries of a mode that are not known to have arrived.
func waitingEntries(client redis.UniversalClient) int64 {
	return client.XLen(context.Background(), "mm:events:{casual}").Val()
}

// published counts the messages of matches that the broker has.
func (s *system) published(t *testing.T) uint64 {
	t.Helper()
	js, closeIt := stream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := js.Stream(ctx, msjetstream.StreamName(event.MatchmakingSubject))
	must(t, err)
	info, err := found.Info(ctx)
	must(t, err)
	return info.State.Msgs
}

// loseMatches takes from the broker what it has of matches: its messages only, of
// which it then still knows the ids, or all that it knows.
func (s *system) loseMatches(t *testing.T, everything bool) {
	t.Helper()
	js, closeIt := stream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if everything {
		must(t, js.DeleteStream(ctx, msjetstream.StreamName(event.MatchmakingSubject)))
		return
	}
	found, err := js.Stream(ctx, msjetstream.StreamName(event.MatchmakingSubject))
	must(t, err)
	must(t, found.Purge(ctx))
}
