package notification_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

// sent inserts n notifications that were sent to a user: the first one ago before now,
// each of the others a step after the one before.
func (f *fixture) sent(userID string, n int, ago, step time.Duration) {
	f.t.Helper()
	f.exec(`INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, finished_at)
		SELECT gen_random_uuid(), gen_random_uuid(), $1, 'EntitlementGranted', '{}', now(), 'SENT', now() - $3::interval + i * $4::interval
		FROM generate_series(0, $2 - 1) i`, userID, n, ago, step)
}

func (f *fixture) since(userID string, after time.Time, limit int) []notification.Notification {
	f.t.Helper()
	list, err := f.store.Since(f.ctx, userID, after, limit)
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

func TestSince(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if list := f.since("u_1", time.Time{}, 10); len(list) != 0 {
		t.Fatalf("without notifications Since has %v", list)
	}
	f.accept(record("u_1"))
	f.exec(`UPDATE notification.notifications SET status = 'FAILED', finished_at = now()`)
	f.accept(record("u_1"), record("u_2"))
	if list := f.since("u_1", time.Time{}, 10); len(list) != 0 {
		t.Fatalf("Since has %v, which was not sent", list)
	}
	f.step(channel(nothing))
	f.sent("u_1", 5, time.Hour, time.Minute)
	all := f.since("u_1", time.Time{}, 10)
	if len(all) != 6 || !slices.IsSortedFunc(all, func(a, b notification.Notification) int { return a.SentAt.Compare(*b.SentAt) }) {
		t.Fatalf("Since has %v, want 6 in the order of their times", all)
	}
	inbox, _, err := f.store.Inbox(f.ctx, "u_1", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	last := all[5]
	for _, n := range inbox {
		if n.ID == last.ID && (n.EventID != last.EventID || n.Status != last.Status || n.AttemptCount != last.AttemptCount || !n.CreatedAt.Equal(last.CreatedAt) ||
			!n.SentAt.Equal(*last.SentAt) || last.ReadAt != nil || string(n.Payload) != string(last.Payload) || last.SentAt.Location() != time.UTC) {
			t.Errorf("Since has %+v, Inbox %+v", last, n)
		}
	}
	for i, n := range all {
		rest := f.since("u_1", *n.SentAt, 10)
		if len(rest) != 5-i {
			t.Errorf("%d after number %d, want %d", len(rest), i, 5-i)
		}
	}
	for limit, want := range map[int]int{-1: 1, 0: 1, 1: 1, 4: 4, 1000: 6} {
		if list := f.since("u_1", time.Time{}, limit); len(list) != want || list[0].ID != all[0].ID {
			t.Errorf("limit %d: %d notifications, want %d", limit, len(list), want)
		}
	}
	f.sent("u_3", 150, time.Hour, time.Second)
	if list := f.since("u_3", time.Time{}, 1000); len(list) != cursor.MaxPage {
		t.Errorf("%d notifications at once, want %d", len(list), cursor.MaxPage)
	}
}

// The notifications of a batch have the same time, so no page ends inside a batch:
// otherwise a reader that continues after the last one would miss the rest.
func TestSinceKeepsABatchTogether(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.sent("u_1", 3, time.Hour, time.Second)
	f.sent("u_1", 500, time.Minute, 0)
	f.sent("u_1", 3, time.Second, time.Millisecond)
	known := map[string]bool{}
	var sizes []int
	for after := (time.Time{}); ; {
		page := f.since("u_1", after, 5)
		for i, n := range page {
			if known[n.ID] || i > 0 && n.SentAt.Equal(*page[i-1].SentAt) && n.ID < page[i-1].ID {
				t.Fatalf("%s is out of order", n.ID)
			}
			known[n.ID] = true
			after = *n.SentAt
		}
		sizes = append(sizes, len(page))
		if len(page) < 5 {
			break
		}
	}
	if len(known) != 506 || !slices.Equal(sizes, []int{503, 3}) {
		t.Errorf("%d in pages of %v, want 506 in pages of 503 and 3", len(known), sizes)
	}
}

func TestSentAt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.accept(record("u_1"), record("u_2"))
	pending := f.one("u_1").ID
	if _, err := f.store.SentAt(f.ctx, "u_1", pending); !errors.Is(err, notification.ErrNotFound) {
		t.Errorf("before it is sent: %v, want ErrNotFound", err)
	}
	f.step(channel(nothing))
	n := f.one("u_1")
	at, err := f.store.SentAt(f.ctx, "u_1", n.ID)
	if err != nil || !at.Equal(*n.SentAt) || at.Location() != time.UTC {
		t.Errorf("%s, want %s; %v", at, n.SentAt, err)
	}
	for _, stranger := range strangers(f.one("u_2").ID) {
		if _, err := f.store.SentAt(f.ctx, "u_1", stranger); !errors.Is(err, notification.ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", stranger, err)
		}
	}
}

// A database that is away is fault.Unavailable, not "not found".
func TestReadingFromADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	nowhere := notification.NewStore(kit.Connect(t, "postgres://u:p@127.0.0.1:1/none"))
	known := strangers("")[1]
	_, since := nowhere.Since(t.Context(), "u_1", time.Time{}, 1)
	_, sentAt := nowhere.SentAt(t.Context(), "u_1", known)
	_, read := nowhere.MarkRead(t.Context(), "u_1", known)
	_, _, next := nowhere.Follow("u_1", time.Time{}).Next(t.Context(), 1)
	for name, err := range map[string]error{"Since": since, "SentAt": sentAt, "MarkRead": read, "Next": next} {
		if fault.Of(err) != fault.Unavailable {
			t.Errorf("%s: %v, want Unavailable", name, err)
		}
	}
}
