package notification_test

import (
	"context"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

// look reads until the follower has no more, and returns the ids in order.
func (f *fixture) look(follower *notification.Follower, limit int) []string {
	f.t.Helper()
	var ids []string
	for {
		fresh, more, err := follower.Next(f.ctx, limit)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, n := range fresh {
			ids = append(ids, n.ID)
		}
		if !more {
			return ids
		}
	}
}

// A statement that marks a notification SENT waits while a later one commits. Its
// notification appears before one that a reader has seen already, and is not missed.
func TestFollowerSeesWhatCommitsLate(t *testing.T) {
	t.Parallel()
	f := setup(t)
	follower := f.store.Follow("u_1", time.Time{})
	f.accept(record("u_1"))
	early := f.one("u_1").ID
	lock, err := f.pool.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(f.ctx)
	finished := make(chan lease.Report, 1)
	locked := make(chan struct{})
	go func() {
		report, err := f.deliverer(channel(func(context.Context, notification.Outgoing) error {
			_, err := lock.Exec(f.ctx, `SELECT FROM notification.notifications FOR UPDATE`)
			close(locked)
			return err
		})).Step(f.ctx)
		if err != nil {
			t.Error(err)
		}
		finished <- report
	}()
	<-locked
	kit.Eventually(t, "the first finish has begun", func() bool {
		return f.count(`pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%finished_at = now()%'`) == 1
	})
	f.accept(record("u_1"))
	f.step(channel(nothing))
	seen := f.look(follower, 10)
	if len(seen) != 1 || seen[0] == early {
		t.Fatalf("while the first finish waits the follower has %v, want the later one", seen)
	}
	late, err := f.store.SentAt(f.ctx, "u_1", seen[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Rollback(f.ctx); err != nil {
		t.Fatal(err)
	}
	if report := <-finished; report.Done != 1 {
		t.Fatalf("the first finish reported %+v, want 1 done", report)
	}
	if list := f.since("u_1", late, 10); len(list) != 0 {
		t.Fatalf("%v: the commits were in order, so this test shows nothing", list)
	}
	if list := f.since("u_1", late.Add(-notification.Overlap), 10); len(list) != 2 || list[0].ID != early {
		t.Errorf("Since, an Overlap earlier, has %v, want both with %s first", list, early)
	}
	if got := f.look(follower, 10); len(got) != 1 || got[0] != early {
		t.Errorf("after the first finish: %v, want %s", got, early)
	}
	if got := f.look(follower, 10); len(got) != 0 {
		t.Errorf("the next look has %v, want nothing", got)
	}
	// A reader reconnects that saw only the later one.
	if got := f.look(f.store.Follow("u_1", late.Add(-notification.Overlap)), 10); len(got) != 2 {
		t.Errorf("a reader that reconnects gets %v, want both", got)
	}
}

// A follower misses nothing that a statement finishes as late as its timeout allows, even
// while a look reads many pages.
func TestFollowerLooksBackFarEnough(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const statement = 10 * time.Second // its timeout
	f.sent("u_1", 25, time.Hour, time.Second)
	f.sent("u_1", 25, statement, time.Millisecond)
	follower := f.store.Follow("u_1", time.Time{})
	known := map[string]bool{}
	add := func(ids []string) {
		t.Helper()
		for _, id := range ids {
			if known[id] {
				t.Errorf("%s came twice", id)
			}
			known[id] = true
		}
	}
	next := func() bool {
		fresh, more, err := follower.Next(f.ctx, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range fresh {
			add([]string{n.ID})
		}
		return more
	}
	for late := 0; ; late++ { // each appears before the last one read
		more := next()
		f.sent("u_1", 1, statement, 0)
		if !more {
			break
		}
	}
	add(f.look(follower, 7))
	if n := f.count(`notification.notifications`); len(known) != n {
		t.Errorf("%d of %d", len(known), n)
	}
	for range 5 { // in later looks, too, nothing comes twice
		f.sent("u_1", 1, statement, 0)
		f.sent("u_1", 10, time.Second, 0)
		add(f.look(follower, 7))
	}
	if n := f.count(`notification.notifications`); len(known) != n {
		t.Errorf("%d of %d", len(known), n)
	}
}

// A notification that is sent after a look began waits for the next look, behind all that
// are older.
func TestFollowerEndsALookAtItsBeginning(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.sent("u_1", 10, time.Minute, time.Second)
	follower := f.store.Follow("u_1", time.Time{})
	if fresh, more, err := follower.Next(f.ctx, 6); err != nil || len(fresh) != 6 || !more {
		t.Fatalf("the first page has %d, more %t, %v; want 6 and more", len(fresh), more, err)
	}
	f.sent("u_1", 1, 0, 0)
	fresh, more, err := follower.Next(f.ctx, 5)
	if err != nil || len(fresh) != 4 || more {
		t.Fatalf("the second page has %d, more %t, %v; want 4 and no more", len(fresh), more, err)
	}
	if got := f.look(follower, 5); len(got) != 1 {
		t.Errorf("the next look has %v, want the one sent meanwhile", got)
	}
}

// A reader follows while a deliverer sends: it gets every notification once.
func TestFollowersBesideDeliverers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.policy.Batch = 20
	const total = 400
	f.pending(total)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for more := true; more; {
			report, err := f.deliverer(channel(nothing)).Step(f.ctx)
			if err != nil {
				t.Error(err)
			}
			more = report.Claimed > 0
		}
	}()
	follower := f.store.Follow("u_1", time.Time{})
	known := map[string]int{}
	kit.Eventually(t, "all are seen", func() bool {
		for _, id := range f.look(follower, 30) {
			known[id]++
		}
		return len(known) == total
	})
	<-done
	for _, id := range f.look(follower, 30) {
		known[id]++
	}
	for id, n := range known {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
}
