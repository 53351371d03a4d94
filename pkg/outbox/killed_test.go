package outbox_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

// These variables make this test binary a child: a relay that is killed at work.
const (
	childMode     = "OUTBOX_TEST_CHILD" // beforePublish or afterPublish: when it is killed
	childDatabase = "OUTBOX_TEST_DATABASE"
	childNATS     = "OUTBOX_TEST_NATS"

	beforePublish = "before publish"
	afterPublish  = "after publish"
)

// suicidal is a publisher that kills its process before or after it published.
type suicidal struct {
	*jetstream.Publisher
	when string
}

func (s suicidal) Publish(ctx context.Context, m []event.Message) []error {
	if s.when == afterPublish {
		for _, err := range s.Publisher.Publish(ctx, m) {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(3)
			}
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func runChild() {
	pool, err := pgxpool.New(context.Background(), os.Getenv(childDatabase))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	p := suicidal{jetstream.NewPublisher(jetstream.New(os.Getenv(childNATS), "child", limits), event.EntitlementSubject), os.Getenv(childMode)}
	_, err = outbox.NewRelay(config(pool, p)).Step(context.Background())
	fmt.Fprintln(os.Stderr, "the child lived:", err)
	os.Exit(3)
}

// killed runs a relay in another process until it is killed.
func (f *fixture) killed(when, natsURL string) {
	f.t.Helper()
	child := exec.CommandContext(f.ctx, os.Args[0])
	child.Env = append(os.Environ(), childMode+"="+when, childDatabase+"="+f.database, childNATS+"="+natsURL)
	output, err := child.CombinedOutput()
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL {
		f.t.Fatalf("the child was not killed: %v\n%s", err, output)
	}
}

// accept makes notifications of all messages in the stream, as the notify function does.
func (f *fixture) accept(natsURL string) (messages int) {
	f.t.Helper()
	client := jetstream.New(natsURL, "notify", limits)
	f.t.Cleanup(client.Close)
	deliveries, err := jetstream.NewConsumer(client, event.EntitlementSubject, "notify").Fetch(f.ctx, 500)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range deliveries {
		record, err := event.Decode(d.Message)
		if err != nil {
			f.t.Fatal(err)
		}
		// One at a time, so that duplicates are not removed within a batch.
		if _, err := notification.NewStore(f.pool).Accept(f.ctx, []event.Record{record}); err != nil {
			f.t.Fatal(err)
		}
	}
	return len(deliveries)
}

// A relay is killed between claim and publish, or between publish and finish: each event
// is in the stream once or twice, and makes exactly one notification.
func TestRelayKilled(t *testing.T) {
	t.Parallel()
	for _, when := range []string{beforePublish, afterPublish} {
		for _, window := range []string{"deduplicated", "after the duplicate window"} {
			t.Run(when+"/"+window, func(t *testing.T) {
				t.Parallel()
				f := setup(t)
				n, _ := startNATS(t)
				ids := f.insert(5)
				f.killed(when, n.URL())
				if held := f.count("status = 'IN_FLIGHT' AND attempt_count = 1"); held != 5 {
					t.Fatalf("%d rows are in flight after the kill, want 5", held)
				}
				js := broker(t, n.URL())
				if window != "deduplicated" {
					forgetDuplicates(t, f, n.URL())
				}
				relay := f.natsRelay(n.URL(), limits)
				if report := f.step(relay); report.Claimed != 0 {
					t.Fatalf("claimed under the dead worker's lease: %+v", report)
				}
				f.due()
				// Rows that were claimed together are claimed again in smaller parts.
				var total lease.Report
				for total.Claimed < 5 {
					report := f.step(relay)
					total.Add(report)
					if report.Claimed == 0 || report.Done != report.Claimed {
						t.Fatalf("%+v, in all %+v; want 5 done", report, total)
					}
				}
				found := stored(t, js)
				for _, id := range ids {
					if times := found[id.String()]; times < 1 || times > 2 {
						t.Errorf("%s is in the stream %d times, want 1 or 2", id, times)
					}
				}
				f.accept(n.URL())
				for _, id := range ids {
					if n := f.notifications(id); n != 1 {
						t.Errorf("%s made %d notifications, want 1", id, n)
					}
				}
			})
		}
	}
}

func (f *fixture) notifications(id uuid.UUID) (n int) {
	f.t.Helper()
	if err := f.pool.QueryRow(f.ctx, `SELECT count(*) FROM notification.notifications WHERE event_id = $1`, id).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// forgetDuplicates publishes every event once more, under another message id: as if the
// lease had ended after the broker's duplicate window, so that it took the event again.
func forgetDuplicates(t testing.TB, f *fixture, url string) {
	t.Helper()
	js := broker(t, url)
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := range info.State.Msgs {
		msg, err := s.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		again := newMsg(msg.Subject, msg.Header, msg.Data)
		again.Header.Set("Nats-Msg-Id", uuid.NewString())
		if _, err := js.PublishMsg(t.Context(), again); err != nil {
			t.Fatal(err)
		}
	}
}
