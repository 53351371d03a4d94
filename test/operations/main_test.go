// Package operations_test asks the console, as operators, viewers and players do, to show
// what is stuck and to mend it.
package operations_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// desk is a system with somebody of each role.
type desk struct {
	*system.System
	people                   *system.People
	operator, viewer, player string
}

func setup(t *testing.T, environment ...string) *desk {
	t.Helper()
	s, people := system.StartWithPeople(t, environment...)
	token := func(role string) string {
		return people.Token(t, map[string]any{"sub": "the " + role, "realm_access": map[string]any{"roles": []string{role}}})
	}
	return &desk{s, people, token("operator"), token("operations-viewer"), token("player")}
}

// exec runs SQL as the owner of the database.
func (d *desk) exec(sql string, args ...any) {
	d.T.Helper()
	_, err := d.Pool.Exec(context.Background(), sql, args...)
	kit.Must(d.T, err)
}

// failed makes n FAILED notifications of a user, with their dead letters.
func (d *desk) failed(n int, user, reason string) {
	d.T.Helper()
	d.exec(`WITH made AS (
		INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, attempt_count, finished_at, last_error)
		SELECT gen_random_uuid(), gen_random_uuid(), $2, 'EntitlementGranted', '{"event_type":"EntitlementGranted"}', now(), 'FAILED', 10, now(), $3 FROM generate_series(1, $1)
		RETURNING notification_id, event_id, user_id, event_type, payload, last_error)
	INSERT INTO notification.notification_dlq (notification_id, event_id, user_id, event_type, payload, error)
	SELECT notification_id, event_id::text, user_id, event_type, payload, last_error FROM made`, n, user, reason)
}

// act is what the API says of one.
type act struct {
	ID        string `json:"act_id"`
	Status    string
	Done      int
	Skipped   int
	Actor     string
	Reason    string
	LastError string `json:"last_error"`
	StoppedBy string `json:"stopped_by"`
}

func (d *desk) begin(key, order string) system.Answer {
	d.T.Helper()
	return d.Call(http.MethodPost, "/v1/operations/acts", d.operator, order, "Idempotency-Key: "+key)
}

// begun begins an act that is accepted.
func (d *desk) begun(key, order string) act {
	d.T.Helper()
	a := d.begin(key, order)
	system.WantStatus(d.T, a, http.StatusCreated)
	return d.read(a)
}

func (d *desk) read(a system.Answer) (got act) {
	d.T.Helper()
	kit.Must(d.T, json.Unmarshal(a.Body, &got))
	return got
}

func (d *desk) act(id string) act {
	d.T.Helper()
	a := d.Call(http.MethodGet, "/v1/operations/acts/"+id, d.viewer, "")
	system.WantStatus(d.T, a, http.StatusOK)
	return d.read(a)
}

// done waits until an act is DONE, ticking as a cron would.
func (d *desk) done(id string) (got act) {
	d.T.Helper()
	kit.Eventually(d.T, "the act is done", func() bool {
		d.TryTick("console")
		got = d.act(id)
		return got.Status == "DONE"
	})
	return got
}

func (d *desk) fits(token, wish string) int {
	d.T.Helper()
	a := d.Call(http.MethodPost, "/v1/operations/acts/dry-run", token, wish)
	system.WantStatus(d.T, a, http.StatusOK)
	n, _ := a.JSON(d.T)["fits"].(float64)
	return int(n)
}

func (d *desk) withStatus(status string) int {
	d.T.Helper()
	return d.Count(`SELECT count(*) FROM notification.notifications WHERE status = $1`, status)
}

func order(kind, queue, filter string, atMost, perSecond int) string {
	return fmt.Sprintf(`{"kind":%q,"queue":%q,"filter":%s,"reason":"INC-42","at_most":%d,"per_second":%d}`, kind, queue, filter, atMost, perSecond)
}
