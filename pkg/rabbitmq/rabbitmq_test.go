package rabbitmq_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	rabbitmqserver "github.com/miniserversystem/miniserver/infra/dev/rabbitmq"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/rabbitmq"
	"github.com/miniserversystem/miniserver/test/kit"
)

// server is shared by the tests that do not stop it: a start takes seconds.
var server *rabbitmqserver.Server

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

// fetch fetches up to 500 messages once, and ends the test unless want came.
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

// A queue that was removed is created again, with its binding.
func TestQueueRemoved(t *testing.T) { shared(t, queueRemoved) }

func queueRemoved(t *testing.T, f fixture) {
	conn, err := amqp.Dial(server.URL())
	kit.Must(t, err)
	defer conn.Close()
	channel, err := conn.Channel()
	kit.Must(t, err)
	_, err = channel.QueueDelete(f.subject+".settle", false, false, false)
	kit.Must(t, err)
	if results := f.publisher.Publish(t.Context(), f.messages(1)); !errors.Is(results[0], outbox.ErrBroker) {
		t.Errorf("publishing without a queue: %v, want ErrBroker", results)
	}
	if _, err := f.consumer.Fetch(t.Context(), 10); fault.Of(err) != fault.Unavailable {
		t.Errorf("the first fetch after the removal: %v, want Unavailable", err)
	}
	f.fetch(0)
	f.publish(f.message())
	kit.Must(t, f.fetch(1)[0].Ack())
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
