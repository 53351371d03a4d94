package notification_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// matchOf returns the event of a match of these players (JSON), with more fields.
func matchOf(players, more string) event.Record {
	id := uuid.Must(uuid.NewV7()).String()
	return event.Record{ID: id, Type: "MatchMade", Key: "m_1", OccurredAt: time.Now(), Payload: fmt.Appendf(nil,
		`{"event_id":%q,"event_type":"MatchMade","occurred_at":"2026-11-21T08:00:00.1Z","match_id":"m_1","mode":"casual","players":%s%s}`, id, players, more)}
}

// Each player of a match is notified with their own view of it, in the form of their
// ticket: without a session it is null, without an error that field is left out.
func TestMatchIsNotifiedToEach(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const players = `[{"user_id":"u_a","ticket_id":"casual_1"},{"user_id":"u_b","ticket_id":"casual_2"}]`
	const session = `{"server":"arena-1","address":"203.0.113.7","ports":[{"name":"game","port":7203}]}`
	for more, want := range map[string]string{
		`,"session":` + session + `,"session_error":""`: `"session":` + session,
		`,"session":` + session:                         `"session":` + session,
		`,"session_error":"no_server"`:                  `"session":null,"session_error":"no_server"`,
		``:                                              `"session":null`,
	} {
		r := matchOf(players, more)
		if created, err := f.store.Accept(f.ctx, []event.Record{r, r}); err != nil || created != 2 {
			t.Fatalf("%q: created %d, %v", more, created, err)
		}
		for _, p := range [][3]string{{"u_a", "casual_1", "u_b"}, {"u_b", "casual_2", "u_a"}} {
			var payload, wanted map[string]any
			if err := f.pool.QueryRow(f.ctx, `SELECT payload FROM notification.notifications WHERE event_id = $1 AND user_id = $2`, r.ID, p[0]).Scan(&payload); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(fmt.Appendf(nil,
				`{"event_id":%q,"event_type":"MatchMade","occurred_at":"2026-11-21T08:00:00.1Z","match_id":"m_1","mode":"casual","user_id":%q,"ticket_id":%q,"peer_user_ids":[%q],%s}`,
				r.ID, p[0], p[1], p[2], want), &wanted); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(payload, wanted) {
				t.Errorf("%q: %s is notified with\n%v, want\n%v", more, p[0], payload, wanted)
			}
		}
	}
}

// An invalid match is poison, and none of its players is notified.
func TestMatchThatIsNone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, players := range []string{
		`null`, `[]`, `[{"user_id":"u_a","ticket_id":"casual_1"}]`, `[{"user_id":"u_a"},{"user_id":""}]`, `[{"user_id":"u_a"},{}]`, `[{"user_id":"u_a"},{"user_id":"u_a"}]`,
		`[{"user_id":"u_a"},{"user_id":7}]`, `{"user_id":"u_a"}`, `"u_a"`, `[{"user_id":"u_a"},{"user_id":"u_b"}`,
	} {
		if _, err := f.store.Accept(f.ctx, []event.Record{matchOf(players, "")}); err == nil || !notification.Poison(err) {
			t.Errorf("%s: %v, want poison", players, err)
		}
	}
	if n := f.count(`notification.notifications`); n != 0 {
		t.Errorf("%d notifications, want none", n)
	}
}
