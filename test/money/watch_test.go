package money_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/telemetry"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// What operators watch: how transfers end, how long they are in progress, what waits in
// the outbox. One transfer can be followed through the log by its key, its id and its
// event.
func TestTransfersAreWatched(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "METRICS_ADDRESS=127.0.0.1:0")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "10"), s.Opened(operator, s.UserID(bob), "0")
	key := s.TransferKey(alice)
	done := s.Pay(alice, key, from, to, "1")
	system.WantStatus(t, done, http.StatusOK)
	system.WantStatus(t, s.Pay(alice, key, from, to, "1"), http.StatusOK) // a replay does not count
	system.WantStatus(t, s.Pay(alice, s.TransferKey(alice), from, to, "100"), http.StatusOK)
	s.Count(`WITH left_alone AS (
		INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, status, request_hash, started_at, expires_at)
		VALUES ('somebody', 'transfer', 'k', 'IN_PROGRESS', sha256(''), now() - interval '2 minutes', now()) RETURNING 1)
		SELECT count(*) FROM left_alone`)

	value := metric(s, t, `transfer_in_progress`)
	if value != 1 {
		t.Errorf("%v transfers in progress, want 1", value)
	}
	if age := metric(s, t, `transfer_in_progress_oldest_age_seconds`); age < 119 || age > 300 {
		t.Errorf("the oldest is %v s old, want 2 minutes", age)
	}
	if n := metric(s, t, `outbox_backlog{outbox="transfer",status="PENDING"}`); n != 2 {
		t.Errorf("%v events wait", n)
	}
	s.Tick("watchdog")
	s.Tick("relay")
	s.Tick("settle")
	for series, want := range map[string]float64{
		`transfer_ended_total{code="",status="SUCCEEDED"}`:                  1,
		`transfer_ended_total{code="INSUFFICIENT_BALANCE",status="FAILED"}`: 1,
		`transfer_ended_total{code="TIMEOUT",status="FAILED"}`:              1,
		`transfer_in_progress_dwell_seconds_count{status="FAILED"}`:         2,
		`outbox_backlog{outbox="entitlement",status="PENDING"}`:             0,
	} {
		if got := metric(s, t, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if n := metric(s, t, `transfer_in_progress`); n != 0 {
		t.Errorf("%v transfers in progress, want none", n)
	}
	if sum := metric(s, t, `transfer_in_progress_dwell_seconds_sum{status="FAILED"}`); sum < 119 {
		t.Errorf("the dwell times of FAILED are %v s, want 2 minutes", sum)
	}

	id := done.JSON(t)["transferId"].(string)
	var event string
	seen := map[string]bool{}
	for line := range strings.Lines(s.Log.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["transferId"] != id {
			continue
		}
		if entry["msg"] == "transfer" {
			event, _ = entry["event_id"].(string)
			if entry["idempotency_key"] != key || entry["status"] != "SUCCEEDED" {
				t.Error(line)
			}
		} else if entry["event_id"] != event {
			t.Error(line)
		}
		seen[entry["msg"].(string)] = true
	}
	if event == "" || !seen["transfer"] || !seen["transfer settled"] {
		t.Errorf("the log has %v, want the transfer and its settlement", seen)
	}
}

// A hanging Postgres holds up the metrics that query it, for a bounded time, and leaves
// the others alone.
func TestMetricsWhilePostgresHangs(t *testing.T) {
	t.Parallel()
	direct := kit.Database(t)
	toPostgres, databaseURL := kit.Through(t, direct)
	s, _ := system.StartWithPeople(t, "WAKES=false", "METRICS_ADDRESS=127.0.0.1:0", "DATABASE_URL="+databaseURL)
	if n := metric(s, t, `outbox_backlog{outbox="transfer",status="PENDING"}`); n != 0 {
		t.Errorf("%v events wait", n)
	}
	toPostgres.Hang()
	began := time.Now()
	metric(s, t, `go_memstats_alloc_bytes_total`)
	if took := time.Since(began); took > 4*telemetry.MeasureTimeout {
		t.Errorf("the metrics took %s", took)
	}
	toPostgres.Mend() // closing hanging connections takes long
}

// metric returns a series as Prometheus reads it.
func metric(s *system.System, t *testing.T, series string) float64 {
	t.Helper()
	text := s.Metrics()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %s in\n%s", series, regexp.MustCompile(`(?m)^(transfer|outbox).*$`).FindAllString(text, -1))
	}
	value, err := strconv.ParseFloat(found[1], 64)
	kit.Must(t, err)
	return value
}
