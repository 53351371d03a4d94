package outage_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// One domain's database is away: cleanup removes everything due in the others, not only
// one batch, and reports what failed.
func TestCleanupBesideADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "NOTIFICATION_DATABASE_URL=postgres://nobody@127.0.0.1:1/nothing")
	_, err := s.Pool.Exec(t.Context(), `
		INSERT INTO entitlement.idempotency_keys (caller, operation, idem_key, request_hash, status_code, response_body, etag, expires_at)
		SELECT 'c', 'grant', 'k' || n, sha256(''), 200, '{}', '1', now() - interval '1 h' FROM generate_series(1, 5000) n`)
	kit.Must(t, err)
	if _, answered := s.Try("cleanup"); answered == "" {
		t.Error("cleanup does not report that a database is away")
	}
	if n := s.Count(`SELECT count(*) FROM entitlement.idempotency_keys`); n != 0 {
		t.Errorf("%d of 5,000 expired keys are left after one tick", n)
	}
}

// An event whose acceptance waits for a lock holds up no event of another subject.
func TestSubjectsAreAcceptedSideBySide(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "10"), s.Opened(operator, s.UserID(bob), "0")
	system.WantStatus(t, s.Pay(alice, s.TransferKey(alice), from, to, "1"), http.StatusOK)
	s.Tick("relay")
	s.Tick("settle")
	// Another transaction is accepting the transfer's event, and holds its lock.
	tx, err := s.Pool.Begin(t.Context())
	kit.Must(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO notification.processed_events (event_id)
		SELECT event_id FROM integration.outbox_events WHERE event_type = 'TransferSettled'`)
	kit.Must(t, err)
	system.WantStatus(t, s.Grant("k", "u_1", "item1"), http.StatusOK)
	s.Tick("relay")
	ended := make(chan string, 1)
	go func() {
		_, answered := s.Try("notify")
		ended <- answered
	}()
	kit.Eventually(t, "the grant's notification is there while the transfer's waits", func() bool {
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_1'`) == 1
	})
	select {
	case answered := <-ended:
		t.Errorf("the transfer's event did not wait; this test shows nothing: %s", answered)
	default:
	}
	kit.Must(t, tx.Rollback(t.Context()))
	if answered := <-ended; answered != "" {
		t.Errorf("notify: %s", answered)
	}
}

// A grant's cost between its commit and SENT, in requests to the stores. More requests
// make every notification later.
func TestRequestsFromGrantToSent(t *testing.T) {
	t.Parallel()
	counted := func(name, raw string) (setting string, link *kit.Link) {
		link, address := kit.Through(t, raw)
		return name + "=" + address, link
	}
	database := kit.Database(t)
	databaseURL, statements := counted("DATABASE_URL", database)
	natsURL, messages := counted("NATS_URL", kit.NATS(t).URL())
	s := system.Start(t, databaseURL, natsURL)
	s.Pool = kit.Connect(t, database)
	requests := func() int64 { return statements.Pieces.Load() + messages.Pieces.Load() }
	settled := func() {
		last, same := requests(), 0
		kit.Eventually(t, "nothing is under way", func() bool {
			if now := requests(); now != last {
				last, same = now, 0
			}
			same++
			return same == 20 // looks, which together take longer than a fetch waits
		})
	}
	// Other work of the machine can only add requests: the least of some tries counts.
	const mostStatements, mostMessages, tries = 10, 12, 8
	leastStatements, leastMessages := int64(math.MaxInt64), int64(math.MaxInt64)
	for i := range tries {
		settled()
		toDatabase, toBroker := statements.Pieces.Load(), messages.Pieces.Load()
		item := fmt.Sprint("item", i)
		system.WantStatus(t, s.Grant(item, "u_1", item), http.StatusOK)
		kit.Eventually(t, item+" is SENT", func() bool {
			return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT' AND payload->>'stock_keeping_unit' = $1`, item) == 1
		})
		settled()
		leastStatements = min(leastStatements, statements.Pieces.Load()-toDatabase)
		leastMessages = min(leastMessages, messages.Pieces.Load()-toBroker)
	}
	if leastStatements > mostStatements || leastMessages > mostMessages {
		t.Errorf("a grant until SENT takes %d requests to Postgres and %d to NATS, want at most %d and %d",
			leastStatements, leastMessages, mostStatements, mostMessages)
	}
}
