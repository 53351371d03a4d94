package notification_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// one returns the only notification of a user.
func (f *fixture) one(userID string) notification.Notification {
	f.t.Helper()
	list, _, err := f.store.Inbox(f.ctx, userID, "", 10)
	if err != nil || len(list) != 1 {
		f.t.Fatalf("%s has the notifications %v, %v; want one", userID, list, err)
	}
	return list[0]
}

// strangers returns ids that are no notification of the user.
func strangers(others string) []string {
	return []string{others, id.Text(id.Notification, id.New()), id.Text(id.User, id.New()), "", "n_", "n_1", "*", "\x00"}
}

func TestMarkRead(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.accept(record("u_1"), record("u_2"))
	for _, status := range []string{"PENDING", "SENT"} {
		unread := f.one("u_1")
		first, err := f.store.MarkRead(f.ctx, "u_1", unread.ID)
		if err != nil || first.ReadAt == nil || first.Status != status || first.ID != unread.ID || first.EventID != unread.EventID || string(first.Payload) != string(unread.Payload) {
			t.Fatalf("marked %+v, %v; want %+v with a time", first, err, unread)
		}
		again, err := f.store.MarkRead(f.ctx, "u_1", unread.ID)
		if err != nil || !again.ReadAt.Equal(*first.ReadAt) || !f.one("u_1").ReadAt.Equal(*first.ReadAt) {
			t.Errorf("again: %+v, %v; first %s", again, err, first.ReadAt)
		}
		if status == "PENDING" {
			f.exec(`UPDATE notification.notifications SET read_at = NULL WHERE user_id = 'u_1'`)
			f.step(channel(nothing))
		}
	}
	for _, stranger := range strangers(f.one("u_2").ID) {
		if _, err := f.store.MarkRead(f.ctx, "u_1", stranger); !errors.Is(err, notification.ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", stranger, err)
		}
	}
	if f.one("u_2").ReadAt != nil || fault.Of(notification.ErrNotFound) != fault.NotFound {
		t.Error("another user's notification was marked, or ErrNotFound is no fault.NotFound")
	}
}

// Several devices mark a notification at once: one time is stored, and all get it.
func TestMarkReadAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for range 20 {
		f.exec(`DELETE FROM notification.notifications`)
		f.accept(record("u_1"))
		n := f.one("u_1")
		times := make([]time.Time, 4)
		var group sync.WaitGroup
		for i := range times {
			group.Go(func() {
				marked, err := f.store.MarkRead(f.ctx, "u_1", n.ID)
				if err != nil {
					t.Error(err)
					return
				}
				times[i] = *marked.ReadAt
			})
		}
		group.Wait()
		for _, at := range append(times, *f.one("u_1").ReadAt) {
			if !at.Equal(times[0]) {
				t.Fatalf("the answers have the times %v, want one", times)
			}
		}
	}
}
