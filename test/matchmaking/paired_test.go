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

// paired joins two players and pairs them by a matcher that wakes nobody: it is
// killed right then. It returns their user ids.
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
		s.T.Fatalf("%+v", pass)
	}
	return users
}

// wantTold wants exactly one notification of one match for each of two users, sent.
func wantTold(s *system.System, users [2]string) {
	s.T.Helper()
	const sql = `SELECT count(*) FROM notification.notifications WHERE event_type = 'MatchMade' AND status = 'SENT' AND user_id = $1 AND payload->'peer_user_ids' = jsonb_build_array($2::text)
		AND payload->'session'->>'address' = 'localhost'`
	all := `SELECT count(*) FROM notification.notifications WHERE event_type = 'MatchMade' AND user_id = $1`
	for i, user := range users {
		if told, n := s.Count(sql, user, users[1-i]), s.Count(all, user); told != 1 || n != 1 {
			s.T.Errorf("%s is told %d times, %d of them of the match with %s", user, n, told, users[1-i])
		}
	}
}

// untold wants that nobody is told yet.
func untold(s *system.System, users [2]string) {
	s.T.Helper()
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = ANY($1)`, users[:]); n != 0 {
		s.T.Fatalf("%d are told already: this test shows nothing", n)
	}
}

// leasesPass makes it later for those who have claimed matches: longer ago than any
// lease lasts.
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

// waitingEntries counts the entries of a mode that are not known to have arrived.
func waitingEntries(client redis.UniversalClient) int64 {
	return client.XLen(context.Background(), "mm:events:{casual}").Val()
}

// published counts the messages of matches that the broker has.
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

// loseMatches takes from the broker what it has of matches: its messages only, of
// which it then still knows the ids, or all that it knows.
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
