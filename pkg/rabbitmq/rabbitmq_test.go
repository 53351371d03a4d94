package rabbitmq_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/miniserversystem/miniserver/infra/dev"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/test/kit"
)

// server is shared by the tests that do not stop it: a start takes seconds.
var server *dev.RabbitMQ

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rabbitmq")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	server = kit.MustRabbitMQ(dir)
	defer func() {
		if err := server.Stop(); err != nil {
			panic(err)
		}
	}()
	return kit.Main(m)
}

type fixture struct {
	*testing.T
	client    *rabbitmq.Client
	publisher *rabbitmq.Publisher
	consumer  *rabbitmq.Consumer
	subject   string
}

// setup returns a subject of the test's own on a server.
func setup(t *testing.T, url string, queue rabbitmq.Queue) fixture {
	t.Helper()
	client := rabbitmq.New(url, t.Name(), queue)
	t.Cleanup(client.Close)
	subject := "test." + uuid.NewString()
	f := fixture{t, client, rabbitmq.NewPublisher(client), rabbitmq.NewConsumer(client, subject, "settle"), subject}
	f.fetch(0) // makes the queue
	return f
}

func (f fixture) message() event.Message {
	return event.Message{
		ID: uuid.NewString(), Type: "miniserver.transfer.v1.TransferCompleted", Source: "/miniserver/transfer", Subject: f.subject,
		Key: "t_1/ä", Time: time.Date(2026, 1, 8, 7, 10, 0, 123456000, time.UTC), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Data: []byte{0, 1, 255},
	}
}

func (f fixture) messages(n int) []event.Message {
	list := make([]event.Message, n)
	for i := range list {
		list[i] = f.message()
	}
	return list
}

func (f fixture) publish(messages ...event.Message) {
	f.Helper()
	for i, err := range f.publisher.Publish(f.Context(), messages) {
		if err != nil {
			f.Fatalf("message %d: %v", i, err)
		}
	}
}

// fetch returns what one Fetch of up to 500 messages does, which must be want many.
func (f fixture) fetch(want int) []event.Delivery {
	f.Helper()
	got, err := f.consumer.Fetch(f.Context(), 500)
	if err != nil {
		f.Fatal(err)
	}
	if len(got) != want {
		f.Fatalf("%d messages, want %d", len(got), want)
	}
	return got
}

func (f fixture) eventually(what string, ok func() bool) {
	f.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatal("not in time: " + what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) { shared(t, roundTrip) }

func roundTrip(t *testing.T, f fixture) {
	sent := f.message()
	f.publish(sent)
	got := f.fetch(1)[0]
	if fmt.Sprint(got.Message) != fmt.Sprint(sent) || got.Delivered != 1 {
		t.Errorf("sent %+v\ngot  %+v (%d)", sent, got.Message, got.Delivered)
	}
	// The same names and values as on JetStream.
	for name, value := range map[string]string{
		"ce-specversion": "1.0", "ce-id": sent.ID, "ce-type": sent.Type, "ce-subject": "t_1/%C3%A4",
		"ce-time": "2026-01-08T07:10:00.123456Z", "event_type": "TransferCompleted", "trace_id": "0af7651916cd43dd8448eb211c80319c",
	} {
		if !slices.Equal(got.Headers[name], []string{value}) {
			t.Errorf("%s is %q, want %q", name, got.Headers[name], value)
		}
	}
	must(t, got.Ack())
	f.fetch(0)
}

// A batch is whole, in order, and never more than was asked for.
func TestBatch(t *testing.T) { shared(t, batch) }

func batch(t *testing.T, f fixture) {
	sent := f.messages(700)
	f.publish(sent[:300]...)
	f.publish(sent[300:]...)
	var got []string
	for len(got) < len(sent) {
		batch, err := f.consumer.Fetch(t.Context(), 200)
		must(t, err)
		if len(batch) == 0 || len(batch) > 200 {
			t.Fatalf("%d messages after %d", len(batch), len(got))
		}
		for _, d := range batch {
			got = append(got, d.Message.ID)
			must(t, d.Ack())
		}
	}
	for i, m := range sent {
		if got[i] != m.ID {
			t.Fatalf("message %d is another", i)
		}
	}
	f.fetch(0)
}

// What is not acknowledged comes again, when it was asked for; what is terminated does not.
func TestAgain(t *testing.T) { shared(t, again) }

func again(t *testing.T, f fixture) {
	f.publish(f.messages(3)...)
	got := f.fetch(3)
	must(t, got[0].Ack())
	began := time.Now()
	must(t, got[1].Again(300*time.Millisecond))
	must(t, got[2].Terminate("poison"))
	var again []event.Delivery
	f.eventually("the message again", func() bool {
		var err error
		again, err = f.consumer.Fetch(t.Context(), 10)
		must(t, err)
		return len(again) > 0
	})
	if took := time.Since(began); len(again) != 1 || again[0].Message.ID != got[1].Message.ID || again[0].Delivered < 1 || took < 300*time.Millisecond {
		t.Errorf("%d messages, delivered %d, after %s", len(again), again[0].Delivered, took)
	}
	must(t, again[0].Ack())
	f.fetch(0)
}

// A message comes back far more often than RabbitMQ 4's limit of 20, and more than 0.
func TestNoDeliveryLimit(t *testing.T) { shared(t, noDeliveryLimit) }

func noDeliveryLimit(t *testing.T, f fixture) {
	f.publish(f.message())
	for i := range 30 {
		var got []event.Delivery
		f.eventually("the message again", func() bool {
			var err error
			got, err = f.consumer.Fetch(t.Context(), 1)
			must(t, err)
			return len(got) == 1
		})
		if quorum := strings.Contains(t.Name(), string(rabbitmq.Quorum)); quorum && got[0].Delivered != uint64(i+1) {
			t.Fatalf("delivered %d times, want %d", got[0].Delivered, i+1) // classic queues do not count
		}
		must(t, got[0].Again(0))
	}
}

// Without mandatory it would be published and gone.
func TestNoQueueIsNotPublished(t *testing.T) { shared(t, noQueueIsNotPublished) }

func noQueueIsNotPublished(t *testing.T, f fixture) {
	nowhere := f.message()
	nowhere.Subject = "nobody.listens"
	results := f.publisher.Publish(t.Context(), []event.Message{f.message(), nowhere, f.message()})
	if results[0] != nil || !errors.Is(results[1], outbox.ErrBroker) || results[2] != nil {
		t.Errorf("%v", results)
	}
	for _, d := range f.fetch(2) {
		must(t, d.Ack())
	}
}

// A queue that was removed is made again, with its binding.
func TestQueueRemoved(t *testing.T) { shared(t, queueRemoved) }

func queueRemoved(t *testing.T, f fixture) {
	conn, err := amqp.Dial(server.URL())
	must(t, err)
	defer conn.Close()
	channel, err := conn.Channel()
	must(t, err)
	_, err = channel.QueueDelete(f.subject+".settle", false, false, false)
	must(t, err)
	if results := f.publisher.Publish(t.Context(), f.messages(1)); !errors.Is(results[0], outbox.ErrBroker) {
		t.Errorf("published to nobody: %v", results)
	}
	if _, err := f.consumer.Fetch(t.Context(), 10); fault.Of(err) != fault.Unavailable {
		t.Errorf("the first fetch meets it: %v", err)
	}
	f.fetch(0)
	f.publish(f.message())
	must(t, f.fetch(1)[0].Ack())
}

func TestCaught(t *testing.T) { shared(t, caught) }

func caught(t *testing.T, f fixture) {
	caught := func(age time.Duration, want bool) {
		t.Helper()
		if got, err := f.consumer.Caught(t.Context(), age); err != nil || got != want {
			t.Errorf("caught up with what is older than %s: %v, %v", age, got, err)
		}
	}
	caught(0, true)
	f.publish(f.message())
	caught(time.Hour, true)
	caught(0, false)
	f.eventually("the message that was looked at", func() bool {
		got, err := f.consumer.Fetch(t.Context(), 1)
		must(t, err)
		return len(got) == 1 && got[0].Ack() == nil
	})
	caught(0, true)
}

// shared runs a test on the server that tests share, with each type of queue.
func shared(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	t.Parallel()
	for _, queue := range []rabbitmq.Queue{rabbitmq.Quorum, rabbitmq.Classic} {
		t.Run(string(queue), func(t *testing.T) {
			t.Parallel()
			test(t, setup(t, server.URL(), queue))
		})
	}
}
