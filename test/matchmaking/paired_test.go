package matchmaking_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// paired joins two players and matches them, as a matcher that is killed before it wakes
// anybody. It returns their user ids.
func paired(s *system.System, people *system.People, client redis.UniversalClient, one, two string) [2]string {
	s.T.Helper()
	var users [2]string
	for i, name := range []string{one, two} {
		token := people.Player(s.T, name)
		s.Joined(token, "casual", "k1", `{}`)
		users[i] = s.UserID(token)
	}
	pass, err := store(s, client).Match(s.T.Context(), "casual", 1)
	kit.Must(s.T, err)
	if len(pass.Matches) != 1 {
		s.T.Fatalf("the pass made %+v, want one match", pass)
	}
	return users
}

// wantNotified wants exactly one notification for each of two users, sent, of their
// match.
func wantNotified(s *system.System, users [2]string) {
	s.T.Helper()
	const sql = `SELECT count(*) FROM notification.notifications WHERE event_type = 'MatchMade' AND status = 'SENT' AND user_id = $1 AND payload->'peer_user_ids' = jsonb_build_array($2::text)
		AND payload->'session'->>'address' = 'localhost'`
	all := `SELECT count(*) FROM notification.notifications WHERE event_type = 'MatchMade' AND user_id = $1`
	for i, user := range users {
		if notified, n := s.Count(sql, user, users[1-i]), s.Count(all, user); notified != 1 || n != 1 {
			s.T.Errorf("%s is notified %d times, %d of them of the match with %s, want once", user, n, notified, users[1-i])
		}
	}
}

// wantNotNotified wants that neither user is notified yet.
func wantNotNotified(s *system.System, users [2]string) {
	s.T.Helper()
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = ANY($1)`, users[:]); n != 0 {
		s.T.Fatalf("%d notifications exist already: this test shows nothing", n)
	}
}

// leasesPass ends the leases of all claimed matches, as if enough time had passed.
func leasesPass(s *system.System, client redis.UniversalClient) {
	ctx := context.Background()
	for _, mode := range []string{"casual", "rank"} {
		key := "mm:events:{" + mode + "}"
		claimed, _ := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: "announce", Start: "-", End: "+", Count: 1000}).Result()
		for _, entry := range claimed {
			_ = client.Do(ctx, "XCLAIM", key, "announce", entry.Consumer, 0, entry.ID, "IDLE", time.Minute.Milliseconds(), "JUSTID").Err()
		}
	}
}

// waitingEntries counts the matches of casual that are not known to have arrived.
func waitingEntries(client redis.UniversalClient) int64 {
	return client.XLen(context.Background(), "mm:events:{casual}").Val()
}

// published counts the messages about matches that the broker has.
func published(s *system.System, t *testing.T) uint64 {
	t.Helper()
	js, closeIt := system.JetStream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := js.Stream(ctx, msjetstream.StreamName(event.MatchmakingSubject))
	kit.Must(t, err)
	info, err := found.Info(ctx)
	kit.Must(t, err)
	return info.State.Msgs
}

// loseMatches has the broker lose its messages about matches but not their ids, or
// everything.
func loseMatches(s *system.System, t *testing.T, everything bool) {
	t.Helper()
	js, closeIt := system.JetStream(t, s)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if everything {
		kit.Must(t, js.DeleteStream(ctx, msjetstream.StreamName(event.MatchmakingSubject)))
		return
	}
	found, err := js.Stream(ctx, msjetstream.StreamName(event.MatchmakingSubject))
	kit.Must(t, err)
	kit.Must(t, found.Purge(ctx))
}
