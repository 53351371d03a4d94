package operations_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A dry run counts and changes nothing; the act changes exactly what fits, takes its dead
// letters along, and leaves a record of who did what and why. Sent again it is the same
// act.
func TestRequeue(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.failed(20, "u_1", "the endpoint answered 503")
	d.failed(5, "u_1", "the endpoint answered 410")
	const filter = `{"error_contains":"503","owner":"u_1"}`
	if n := d.fits(d.viewer, `{"kind":"requeue","queue":"notifications","filter":`+filter+`}`); n != 20 || d.withStatus("FAILED") != 25 {
		t.Fatalf("the dry run counts %d, want 20, and %d are FAILED, want 25", n, d.withStatus("FAILED"))
	}
	wish := order("requeue", "notifications", filter, 20, 1000)
	begun := d.begun("k1", wish)
	got := d.done(begun.ID)
	if got.Done != 20 || got.Skipped != 0 || got.Actor != "the operator" || got.Reason != "INC-42" {
		t.Errorf("the act is %+v, want 20 rows done by the operator, for INC-42", got)
	}
	if failed, letters := d.withStatus("FAILED"), d.Count(`SELECT count(*) FROM notification.notification_dlq`); failed != 5 || letters != 5 {
		t.Errorf("%d FAILED rows and %d letters are left, want 5 and 5", failed, letters)
	}
	if n := d.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'PENDING' AND attempt_count = 0 AND finished_at IS NULL`); n != 20 {
		t.Errorf("%d rows may be tried from the start, want 20", n)
	}
	again := d.begin("k1", wish)
	system.WantStatus(t, again, http.StatusCreated)
	if d.read(again).ID != begun.ID {
		t.Error("the same order with the same key began another act")
	}
	system.WantProblem(t, d.begin("k1", order("requeue", "notifications", `{}`, 1, 1)), http.StatusConflict, "idempotency_key_reused")
	system.WantProblem(t, d.begin("k2", wish), http.StatusConflict, "nothing_to_do")
	list := d.Call(http.MethodGet, "/v1/operations/acts", d.viewer, "")
	system.WantStatus(t, list, http.StatusOK)
	if !strings.Contains(string(list.Body), begun.ID) {
		t.Errorf("the list of acts lacks it: %s", list.Body)
	}
	system.WantProblem(t, d.Call(http.MethodPost, "/v1/operations/acts/"+begun.ID+"/stop", d.operator, ""), http.StatusConflict, "act_ended")
}

// An order that cannot be carried out is refused, and changes nothing.
func TestRefusedOrders(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.failed(3, "u_1", "503")
	for wish, want := range map[string]string{
		order("requeue", "nowhere", `{}`, 1, 1):                                                   "request_invalid",
		order("discard", "notifications", `{}`, 1, 1):                                             "act_unknown",
		order("requeue", "notifications", `{"ids":["n_x"]}`, 1, 1):                                "ids_invalid",
		order("republish", "entitlement-outbox", `{}`, 1, 1):                                      "ids_invalid",
		order("replay", "notification-letters", `{"owner":"u_1"}`, 1, 1):                          "filter_invalid",
		order("replay", "notification-letters", `{"error_contains":"a\u0000"}`, 1, 1):             "filter_invalid",
		order("requeue", "notifications", `{"event_type":"a\u0000"}`, 1, 1):                       "filter_invalid",
		order("requeue", "notifications", `{"owner":"a\u0000"}`, 1, 1):                            "filter_invalid",
		strings.Replace(order("requeue", "notifications", `{}`, 1, 1), "INC-42", "", 1):           "request_invalid",
		strings.Replace(order("requeue", "notifications", `{}`, 1, 1), `"INC-42"`, `"\u0000"`, 1): "request_invalid",
		order("requeue", "notifications", `{}`, 0, 1):                                             "request_invalid",
		order("requeue", "notifications", `{}`, 1, 1001):                                          "request_invalid",
		order("requeue", "notifications", `{"unknown":1}`, 1, 1):                                  "request_invalid",
		order("sign-out", "sessions", `{"owner":"u_01h455vb4pex5vsknk084sn02q"}`, 1, 1):           "nothing_to_do",
	} {
		a := d.begin("k", wish)
		if a.Status < 400 || !strings.Contains(string(a.Body), `"`+want+`"`) {
			t.Errorf("%s is answered %d %s, want %s", wish, a.Status, a.Body, want)
		}
	}
	if n := d.Count(`SELECT count(*) FROM notification.acts`); n != 0 || d.withStatus("FAILED") != 3 {
		t.Errorf("%d acts were recorded and %d rows are FAILED, want none and 3", n, d.withStatus("FAILED"))
	}
}

// An act keeps its rate, stops after the batch that it is at, and goes on where it was.
func TestStopAndResume(t *testing.T) {
	t.Parallel()
	d := setup(t)
	const rows, rate = 60, 20
	d.failed(rows, "u_1", "503")
	began := time.Now()
	id := d.begun("k", order("requeue", "notifications", `{}`, rows, rate)).ID
	kit.Eventually(t, "the first batch is done", func() bool { return d.act(id).Done > 0 })
	stop := d.Call(http.MethodPost, "/v1/operations/acts/"+id+"/stop", d.operator, "")
	system.WantStatus(t, stop, http.StatusOK)
	stopped := d.read(stop)
	if stopped.Status != "STOPPED" || stopped.StoppedBy != "the operator" || stopped.Done >= rows {
		t.Fatalf("the act is %+v, want it stopped by the operator before its end", stopped)
	}
	d.Tick("console")
	if now := d.act(id); now.Done != stopped.Done || d.withStatus("FAILED") != rows-stopped.Done {
		t.Errorf("a stopped act went on: %d done and %d FAILED, want %d and %d", now.Done, d.withStatus("FAILED"), stopped.Done, rows-stopped.Done)
	}
	system.WantStatus(t, d.Call(http.MethodPost, "/v1/operations/acts/"+id+"/resume", d.operator, ""), http.StatusOK)
	if got := d.done(id); got.Done != rows || d.withStatus("FAILED") != 0 {
		t.Errorf("the act is %+v and %d rows are FAILED, want %d done and none FAILED", got, d.withStatus("FAILED"), rows)
	}
	if took := time.Since(began); took < (rows/rate-1)*time.Second {
		t.Errorf("%d rows took %s, which is more than %d a second", rows, took, rate)
	}
}

// Two acts on the same rows at once: each row is requeued once.
func TestActsAtOnce(t *testing.T) {
	t.Parallel()
	d := setup(t)
	other := d.Another()
	const rows = 200
	d.failed(rows, "u_1", "503")
	var ids [4]string
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			a := d.begin(fmt.Sprint("k", i), order("requeue", "notifications", `{}`, rows, 100))
			if a.Status == http.StatusCreated {
				ids[i] = d.read(a).ID
			} else if !strings.Contains(string(a.Body), "nothing_to_do") {
				t.Errorf("answered %d %s", a.Status, a.Body)
			}
		})
	}
	group.Wait()
	total := 0
	for _, id := range ids {
		if id == "" {
			continue
		}
		other.TryTick("console")
		total += d.done(id).Done
	}
	if total != rows || d.withStatus("PENDING") != rows {
		t.Errorf("the acts changed %d rows, and %d are PENDING; want %d and %d", total, d.withStatus("PENDING"), rows, rows)
	}
}

// A row that failed after the act began is not its: a receiver that is still down does not
// make an act go round in circles.
func TestFailedAgain(t *testing.T) {
	t.Parallel()
	d := setup(t, "WAKES=false")
	d.failed(2, "u_1", "503")
	id := d.begun("k", order("requeue", "notifications", `{}`, 100, 1000)).ID
	d.failed(3, "u_1", "failed again")
	if got := d.done(id); got.Done != 2 || d.withStatus("FAILED") != 3 {
		t.Errorf("the act is %+v, and %d rows are FAILED; want 2 done and 3 FAILED", got, d.withStatus("FAILED"))
	}
}

// An act stays within at_most, although more rows fit.
func TestAtMost(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.failed(50, "u_1", "503")
	if got := d.done(d.begun("k", order("requeue", "notifications", `{}`, 7, 1000)).ID); got.Done != 7 || d.withStatus("FAILED") != 43 {
		t.Errorf("the act is %+v, and %d rows are FAILED; want 7 done and 43 FAILED", got, d.withStatus("FAILED"))
	}
}

// Among very many FAILED rows, a dry run and a batch answer quickly, also when few rows fit.
func TestVeryManyRows(t *testing.T) {
	t.Parallel()
	d := setup(t)
	const rows = 120_000
	d.exec(`INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, status, finished_at, last_error)
		SELECT gen_random_uuid(), 'u_1', 'EntitlementGranted', '{}', now(), 'FAILED', now(), CASE WHEN n % 40000 = 0 THEN 'rare' ELSE 'common' END FROM generate_series(1, $1) n`, rows)
	if n := d.fits(d.viewer, `{"kind":"requeue","queue":"entitlement-outbox"}`); n != 100_000 {
		t.Errorf("the dry run counts %d, want its bound, 100,000", n)
	}
	if got := d.done(d.begun("rare", order("requeue", "entitlement-outbox", `{"error_contains":"rare"}`, 10, 1000)).ID); got.Done != 3 {
		t.Errorf("the act is %+v, want the 3 rare rows done", got)
	}
	id := d.begun("all", order("requeue", "entitlement-outbox", `{}`, rows, 1000)).ID
	kit.Eventually(t, "two batches are done", func() bool { return d.act(id).Done >= 1000 })
	system.WantStatus(t, d.Call(http.MethodPost, "/v1/operations/acts/"+id+"/stop", d.operator, ""), http.StatusOK)
	stopped := d.act(id)
	left := d.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status = 'FAILED'`)
	if stopped.Status != "STOPPED" || left != rows-3-stopped.Done {
		t.Errorf("the act is %+v, and %d rows are FAILED, want %d", stopped, left, rows-3-stopped.Done)
	}
}

// PUBLISHED events that are named are published again, once the broker no longer takes them
// for duplicates, and change nothing for a consumer that has them.
func TestRepublish(t *testing.T) {
	t.Parallel()
	d := setup(t)
	user := d.UserID(d.player)
	system.WantStatus(t, d.Grant("k1", user, "item1"), http.StatusOK)
	d.DeliverAll()
	var event string
	kit.Must(t, d.Pool.QueryRow(t.Context(), `SELECT event_id::text FROM entitlement.outbox_events`).Scan(&event))
	wish := order("republish", "entitlement-outbox", `{"ids":["`+event+`"]}`, 1, 10)
	system.WantProblem(t, d.begin("early", wish), http.StatusConflict, "nothing_to_do")
	d.exec(`UPDATE entitlement.outbox_events SET finished_at = finished_at - interval '3 min'`)
	if got := d.done(d.begun("k", wish).ID); got.Done != 1 {
		t.Fatalf("the act is %+v, want 1 done", got)
	}
	d.DeliverAll()
	published, notified := d.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status = 'PUBLISHED'`), d.Count(`SELECT count(*) FROM notification.notifications`)
	if published != 1 || notified != 1 {
		t.Errorf("%d events are PUBLISHED and %d notifications there, want 1 and 1", published, notified)
	}
	// A consumer that has forgotten the event would take it for new.
	d.exec(`UPDATE entitlement.outbox_events SET finished_at = finished_at - interval '1 year'`)
	system.WantProblem(t, d.begin("late", wish), http.StatusConflict, "nothing_to_do")
}

// An act ends a person's sessions, and names its actor.
func TestSignOut(t *testing.T) {
	t.Parallel()
	i := system.NewCodeIssuer(t)
	d := &desk{System: system.StartAt(t, i)}
	d.operator = i.Fresh(t, "olga", map[string]any{"realm_access": map[string]any{"roles": []string{"operator"}}})
	d.viewer = d.operator
	alice, again, bob := d.Visitor(), d.Visitor(), d.Visitor()
	for visitor, subject := range map[*system.Visitor]string{alice: "alice", again: "alice", bob: "bob"} {
		visitor.SignIn(i, "/", system.SigningIn{Subject: subject})
	}
	filter := `{"owner":"` + alice.Whoami() + `"}`
	if n := d.fits(d.operator, `{"kind":"sign-out","queue":"sessions","filter":`+filter+`}`); n != 2 {
		t.Errorf("the dry run counts %d sessions, want 2", n)
	}
	if got := d.done(d.begun("k", order("sign-out", "sessions", filter, 2, 1)).ID); got.Done != 2 {
		t.Errorf("the act is %+v, want 2 sessions ended", got)
	}
	for visitor, want := range map[*system.Visitor]int{alice: http.StatusUnauthorized, again: http.StatusUnauthorized, bob: http.StatusOK} {
		system.WantStatus(t, visitor.Do(http.MethodGet, "/v1/me", ""), want)
	}
}

// Behind a pooler statements are sent without their types being asked for.
func TestOtherExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := setup(t, "POSTGRES_EXEC_MODE="+mode)
			user := d.UserID(d.player)
			d.failed(3, user, "503")
			good := granted(t, user)
			d.letter(good.Data, headersOf(good), "unreadable")
			from := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
			filter := `{"owner":"` + user + `","event_type":"EntitlementGranted","error_contains":"503","failed_from":"` + from + `"}`
			if got := d.done(d.begun("k1", order("requeue", "notifications", filter, 3, 10)).ID); got.Done != 3 {
				t.Errorf("the act is %+v, want 3 requeued", got)
			}
			if got := d.done(d.begun("k2", order("replay", "notification-letters", `{}`, 1, 10)).ID); got.Done != 1 {
				t.Errorf("the act is %+v, want 1 replayed", got)
			}
			d.Tick("console") // a sample
			for _, path := range []string{"/console", "/console/queues/notifications", "/console/queues/notification-letters", "/console/acts", "/console/people/" + user} {
				system.WantStatus(t, d.Call(http.MethodGet, path, d.viewer, ""), http.StatusOK)
			}
			away, _ := d.Call(http.MethodGet, "/v1/operations/flow", d.viewer, "").JSON(t)["away"].([]any)
			if len(away) != 0 {
				t.Errorf("parts cannot be read: %v", away)
			}
			system.WantStatus(t, d.Call(http.MethodPost, "/v1/operations/users/"+user+"/export", d.operator, `{"reason":"x"}`, "Idempotency-Key: k3"), http.StatusOK)
			d.begun("k4", order("erase", "accounts", `{"owner":"`+user+`"}`, 1, 10))
			d.exec(`UPDATE account.acts SET next_at = now()`)
			kit.Eventually(t, "the person is erased", func() bool {
				d.TryTick("console")
				d.exec(`UPDATE account.acts SET next_at = now() WHERE status = 'RUNNING'`)
				return d.Count(`SELECT count(*) FROM account.acts WHERE kind = 'erase' AND status = 'DONE'`) == 1
			})
		})
	}
}
