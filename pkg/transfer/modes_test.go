package transfer_test

import (
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/transfer"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The store works in every mode of the protocol; behind a transaction pooler statements
// run in other modes than the default.
func TestEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, 4, mode, nil)
			from, to := a.open("u_a", "999999999.9999"), a.open("u_b", "0")
			key, err := a.IssueKey(t.Context(), "u_a")
			if left := time.Until(key.ExpiresAt); err != nil || left > transfer.KeyLifetime || left < transfer.KeyLifetime-time.Minute {
				t.Fatalf("issued %+v, %v; want a key for %s", key, err, transfer.KeyLifetime)
			}
			sent := wish{client: "u_a", key: key.Key, owner: "u_a", from: from, to: to, amount: amount(t, "123456789.0001")}
			for range 2 {
				a.mustBe(t, a.Store, sent, transfer.Succeeded)
			}
			list, _, err := a.Transfers(t.Context(), from, "", 1)
			if err != nil || len(list) != 1 || list[0].Amount != "123456789.0001" {
				t.Fatalf("the transfers are %+v, %v; want the one of 123456789.0001", list, err)
			}
			back := a.wish("ops", 0, 0, "1")
			back.owner, back.reverses = "", list[0].ID
			for range 2 {
				a.mustBe(t, a.Store, back, transfer.Succeeded)
			}
			a.mustBe(t, a.Store, a.wish("u_b", to, from, "0.0001"), transfer.Failed)
			if report, _, err := a.EndOrphans(t.Context(), time.Millisecond); err != nil || report.Dead != 0 {
				t.Errorf("the watchdog reported %+v, %v; want none dead", report, err)
			}
			if report, err := a.WriteLedger(t.Context()); err != nil || report.Done != 3 {
				t.Errorf("the ledger reported %+v, %v; want 3 done", report, err)
			}
			if entries, _, err := a.Ledger(t.Context(), from, "", 10); err != nil || len(entries) != 3 {
				t.Errorf("the entries are %v, %v; want 3", entries, err)
			}
			record := event.Record{ID: id.New().String(), Key: list[0].ID, Payload: []byte(`{}`), OccurredAt: time.Now()}
			for want := 1; want >= 0; want-- { // it is delivered again
				if n, err := a.Settle(t.Context(), []event.Record{record}); err != nil || n != want {
					t.Errorf("settled %d events, %v; want %d", n, err, want)
				}
			}
			if got := a.one(`SELECT count(*) FROM integration.outbox_events WHERE event_type = 'TransferSettled' AND ` + kit.OtherTime("event_id", "occurred_at", "clock_timestamp()")); got != "0" {
				t.Error("the id of the event that it was settled is not of the time")
			}
			if _, _, err := a.Cleanup(t.Context(), transfer.Retention{Processed: time.Hour}); err != nil {
				t.Error(err)
			}
			a.mustBeRight()
		})
	}
}
