package notification_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/test/kit"
)

var errTest = errors.New("the receiver says no")

// The channel's answer decides what becomes of the notification.
func TestChannelAnswers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.pending(6)
	answers := map[string]func() error{
		ids[0]: func() error { return nil },
		ids[1]: func() error { return errTest },
		ids[2]: func() error { return notification.Never(errTest) },
		ids[3]: func() error { return fmt.Errorf("endpoint 1: %w", notification.RetryAfter(90*time.Second, errTest)) },
		ids[4]: func() error { panic("a bug in the channel") },
		ids[5]: func() error { return notification.RetryAfter(1000*time.Hour, errTest) },
	}
	report := f.step(channel(func(_ context.Context, o notification.Outgoing) error { return answers[o.EventID]() }))
	if want := (lease.Report{Claimed: 6, Done: 1, Retried: 4, Dead: 1}); report != want {
		t.Errorf("%+v, want %+v", report, want)
	}
	for i, want := range []struct {
		status   string
		min, max float64
		letters  int
		reason   string
	}{
		{"SENT", -60, 0, 0, ""},
		{"PENDING", 0.2, 1.5, 0, errTest.Error()},
		{"FAILED", -60, 0, 1, errTest.Error()},
		{"PENDING", 80, 90, 0, errTest.Error()},
		{"PENDING", 0.2, 1.5, 0, "a bug in the channel"},
		{"PENDING", 3500, 3600, 0, errTest.Error()},
	} {
		r := f.row(ids[i])
		reason := ""
		if r.Error != nil {
			reason = *r.Error
		}
		if r.Status != want.status || r.Attempts != 1 || r.Wait < want.min || r.Wait > want.max || r.Letters != want.letters || !strings.Contains(reason, want.reason) {
			t.Errorf("%d: %+v (%s), want %+v", i, r, reason, want)
		}
	}
	if n := f.count(`notification.notification_dlq WHERE event_id = $1 AND user_id = 'u_1' AND event_type = 'EntitlementGranted'
		AND payload->>'event_id' = event_id AND raw_message IS NULL AND error = $2`, ids[2], errTest.Error()); n != 1 {
		t.Error("the dead letter does not name the event, its user and the error")
	}
}

func TestMaxAttempts(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.policy.MaxAttempts = 3
	ids := f.pending(1)
	for n := 1; n <= 3; n++ {
		report := f.step(channel(func(_ context.Context, o notification.Outgoing) error {
			if o.Attempt != n {
				t.Errorf("attempt %d, want %d", o.Attempt, n)
			}
			return errTest
		}))
		if dead := n == 3; report.Claimed != 1 || (report.Dead == 1) != dead || (report.Retried == 1) == dead {
			t.Errorf("attempt %d reported %+v, want it retried, and dead after the third", n, report)
		}
		f.due()
	}
	if r := f.row(ids[0]); r.Status != "FAILED" || r.Attempts != 3 || r.Letters != 1 {
		t.Errorf("the notification is %+v, want FAILED after 3 attempts with a dead letter", r)
	}
	if report := f.step(channel(nil)); report.Claimed != 0 {
		t.Errorf("the step reported %+v, want nothing claimed", report)
	}
}

// A notification whose worker was killed at the last attempt ends FAILED, with a dead
// letter, and is not sent again.
func TestKilledAtTheLastAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.pending(1)
	f.exec(`UPDATE notification.notifications SET status = 'PROCESSING', attempt_count = 10, claim_size = 1, claim_token = gen_random_uuid(), lease_until = now()`)
	report := f.step(channel(func(context.Context, notification.Outgoing) error { t.Error("sent"); return nil }))
	if r := f.row(ids[0]); r.Status != "FAILED" || r.Letters != 1 || report.Dead != 1 {
		t.Errorf("the notification is %+v and the step reported %+v, want FAILED with a dead letter", r, report)
	}
}

// FAILED and the dead letter are written by one statement: both or none.
func TestFailedAndDeadLetterAreBothOrNone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.pending(1)
	f.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''the disk is full''; END'`)
	f.exec(`CREATE TRIGGER refuse BEFORE INSERT ON notification.notification_dlq FOR EACH ROW EXECUTE FUNCTION refuse()`)
	never := channel(func(context.Context, notification.Outgoing) error { return notification.Never(errTest) })
	if _, err := f.deliverer(never).Step(f.ctx); err == nil {
		t.Error("Step returned no error when the dead letter was refused")
	}
	if r := f.row(ids[0]); r.Status != "PROCESSING" || r.Letters != 0 {
		t.Fatalf("with the dead letter refused the notification is %+v, want PROCESSING", r)
	}
	f.exec(`DROP TRIGGER refuse ON notification.notification_dlq`)
	f.due()
	f.step(never)
	if r := f.row(ids[0]); r.Status != "FAILED" || r.Letters != 1 {
		t.Fatalf("afterwards the notification is %+v, want FAILED with a dead letter", r)
	}
}

// One receiver hangs until time is up: the other notifications are sent meanwhile.
func TestSlowReceiverStopsNobody(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.pending(60)
	slow := map[string]bool{ids[0]: true, ids[1]: true, ids[30]: true}
	release := make(chan struct{})
	var others sent
	ended := make(chan lease.Report, 1)
	go func() {
		report, err := f.deliverer(channel(func(ctx context.Context, o notification.Outgoing) error {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > f.policy.Lease*3/4 {
				t.Errorf("sending may take until %s, want three quarters of the lease at most", deadline)
			}
			if slow[o.EventID] {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return errTest
			}
			others.add(o.EventID)
			return nil
		})).Step(f.ctx)
		if err != nil {
			t.Error(err)
		}
		ended <- report
	}()
	kit.Eventually(t, "the others are sent", func() bool { return others.count() == 57 })
	close(release)
	if report := <-ended; report.Done != 57 || report.Retried != 3 {
		t.Errorf("the step reported %+v, want 57 done and 3 retried", report)
	}
}

// A notification whose turn never came, because others took all the time, keeps its
// attempts, however often that happens.
func TestNotSentIsNotAnAttempt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.policy.Lease = time.Second
	f.policy.MaxAttempts = 1
	f.pending(40)
	var tried sent
	f.step(channel(func(ctx context.Context, o notification.Outgoing) error {
		tried.add(o.ID)
		<-ctx.Done()
		return ctx.Err()
	}))
	if tried.count() == 40 {
		t.Fatal("all were tried, so this test shows nothing")
	}
	if failed := f.count(`notification.notifications WHERE status = 'FAILED'`); failed > tried.count() {
		t.Errorf("%d FAILED, only %d were ever sent", failed, tried.count())
	}
	if kept := f.count(`notification.notifications WHERE status = 'PENDING' AND attempt_count = 0`); kept != 40-tried.count() {
		t.Errorf("%d keep their attempts, want %d", kept, 40-tried.count())
	}
}

// A slow receiver that answers in time gets every notification at its first attempt: none
// is begun so late that the end of the lease would cut it off.
func TestNoSendIsCutOff(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.policy.Lease = 5 * time.Second // 3 s for the work
	f.policy.MaxAttempts = 1
	f.pending(40)
	d := f.deliverer(channel(func(ctx context.Context, _ notification.Outgoing) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(1700 * time.Millisecond):
			return nil
		}
	}))
	d.SendTimeout = 2 * time.Second
	kit.Eventually(t, "all are SENT", func() bool {
		if _, err := d.Step(f.ctx); err != nil {
			t.Fatal(err)
		}
		if n := f.count(`notification.notifications WHERE status = 'FAILED'`); n > 0 {
			t.Fatalf("%d are FAILED", n)
		}
		return f.count(`notification.notifications WHERE status = 'SENT'`) == 40
	})
}

// A deliverer sleeps longer than its lease. The next one still holds the notification, or
// is done with it: the sleeper overwrites neither.
func TestDelivererPausedLongerThanItsLease(t *testing.T) {
	t.Parallel()
	for _, successor := range []string{"holds", "done"} {
		for name, answer := range map[string]error{"sent": nil, "failed": errTest, "never": notification.Never(errTest)} {
			t.Run(successor+"/"+name, func(t *testing.T) {
				t.Parallel()
				f := setup(t)
				ids := f.pending(1)
				wake := f.paused(answer)
				f.due()
				wakeSecond, want := func() lease.Report { return f.step(channel(nothing)) }, "SENT"
				if successor == "holds" {
					wakeSecond, want = f.paused(nil), "PROCESSING"
				} else {
					wakeSecond()
				}
				if report := wake(); report != (lease.Report{Claimed: 1, LostLease: 1}) {
					t.Errorf("the sleeper reported %+v, want Claimed: 1, LostLease: 1", report)
				}
				if r := f.row(ids[0]); r.Status != want || r.Letters != 0 {
					t.Errorf("the sleeper overwrote it: %+v, want %s", r, want)
				}
				wakeSecond()
				if r := f.row(ids[0]); r.Status != "SENT" || r.Letters != 0 {
					t.Errorf("in the end the notification is %+v, want SENT", r)
				}
			})
		}
	}
}

// paused starts a deliverer and returns when it sleeps in the middle of sending. Once
// woken, its channel returns answer.
func (f *fixture) paused(answer error) (wake func() lease.Report) {
	f.t.Helper()
	asleep, awake, ended := make(chan struct{}), make(chan struct{}), make(chan lease.Report, 1)
	go func() {
		report, err := f.deliverer(channel(func(context.Context, notification.Outgoing) error {
			close(asleep)
			<-awake
			return answer
		})).Step(f.ctx)
		if err != nil {
			f.t.Error(err)
		}
		ended <- report
	}()
	<-asleep
	return func() lease.Report {
		close(awake)
		return <-ended
	}
}

// Many deliverers at once send everything once.
func TestManyDeliverers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.policy.Batch = 30
	f.pending(500)
	var once sent
	var total atomic.Int64
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			for {
				report, err := f.deliverer(channel(func(_ context.Context, o notification.Outgoing) error {
					once.add(o.ID)
					total.Add(1)
					return nil
				})).Step(f.ctx)
				if err != nil {
					t.Error(err)
				}
				if report.Claimed == 0 {
					return
				}
			}
		})
	}
	group.Wait()
	if once.count() != 500 || total.Load() != 500 {
		t.Errorf("%d notifications were sent %d times, want 500 each once", once.count(), total.Load())
	}
}

// childDatabase makes this test binary a child: a deliverer that is killed at work.
const childDatabase = "NOTIFICATION_TEST_DATABASE"

func runChild() {
	pool, err := pgxpool.New(context.Background(), os.Getenv(childDatabase))
	if err == nil {
		_, err = notification.NewDeliverer(pool, lease.DefaultPolicy, "child", channel(func(_ context.Context, o notification.Outgoing) error {
			fmt.Print(o.ID) // the receiver has it
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}), slog.Default()).Step(context.Background())
	}
	fmt.Fprintln(os.Stderr, "the child lived:", err)
	os.Exit(3)
}

// A deliverer is killed after it sent, before it records that: the notification is sent
// again with the same id, so that the receiver recognises it.
func TestKilledAfterSending(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.pending(1)
	child := exec.CommandContext(f.ctx, os.Args[0])
	child.Env = append(os.Environ(), childDatabase+"="+f.database)
	first, err := child.Output()
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || len(first) == 0 {
		t.Fatalf("the child was not killed: %v, %q", err, first)
	}
	var second string
	record := channel(func(_ context.Context, o notification.Outgoing) error {
		second = o.ID
		return nil
	})
	if report := f.step(record); report.Claimed != 0 {
		t.Fatalf("claimed under the dead worker's lease: %+v", report)
	}
	f.due()
	f.step(record)
	if second != string(first) {
		t.Errorf("sent as %s, then as %s", first, second)
	}
	if r := f.row(ids[0]); r.Status != "SENT" || r.Attempts != 2 {
		t.Errorf("the notification is %+v, want SENT after 2 attempts", r)
	}
}

// A tick that ends while a batch is being sent lets the sends under way finish: receivers
// may have them already, and a rollout is no failed attempt.
func TestTickEndsWhileSending(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.policy.MaxAttempts = 1
	f.pending(40)
	tick, end := context.WithCancel(f.ctx)
	var tried sent
	report, err := f.deliverer(channel(func(ctx context.Context, o notification.Outgoing) error {
		tried.add(o.ID)
		end() // while this one, and those beside it, are being sent
		return ctx.Err()
	})).Step(tick)
	if err != nil {
		t.Fatal(err)
	}
	if report.Dead != 0 || report.Done != tried.count() || report.Done == 40 {
		t.Errorf("the step reported %+v, want the %d that were sent done and none dead", report, tried.count())
	}
	if n := f.count(`notification.notifications WHERE status = 'PENDING' AND attempt_count = 0`); n != 40-report.Done {
		t.Errorf("%d keep their attempts, want %d", n, 40-report.Done)
	}
}
