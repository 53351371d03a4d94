package money_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// With RabbitMQ chosen, JetStream carries nothing of transfers but notifications; a
// restart of the broker in between loses nothing, and what the broker does lose is
// published again. Each owner is notified once.
func TestTransfersOverRabbitMQ(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rabbit := kit.RabbitMQ(t, dir)
	s, people := system.StartWithPeople(t, "WAKES=false", "TRANSFER_BROKER=rabbitmq", "RABBITMQ_URL="+rabbit.URL(), "RABBITMQ_QUEUE=classic", "RECONCILE_AFTER=1ms")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "100"), s.Opened(operator, s.UserID(bob), "0")
	pay := func() string {
		a := s.Pay(alice, s.TransferKey(alice), from, to, "1")
		system.WantStatus(t, a, http.StatusOK)
		return a.JSON(t)["transferId"].(string)
	}
	notified := func(token, id string) int {
		return strings.Count(string(s.Call(http.MethodGet, "/v1/me/notifications", token, "").Body), fmt.Sprintf(`"transfer_id":%q`, id))
	}
	carry := func(id string) {
		t.Helper()
		kit.Eventually(t, "both owners are notified of "+id, func() bool {
			for _, function := range []string{"relay", "settle", "relay", "notify", "deliver"} {
				s.Try(function)
			}
			return notified(alice, id) == 1 && notified(bob, id) == 1
		})
	}
	s.Tick("settle") // creates the queue
	carry(pay())
	js, closeJS := system.JetStream(t, s)
	defer closeJS()
	if _, err := js.Stream(t.Context(), "TRANSFER_EVENTS"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream of transfers on JetStream: %v, want none", err)
	}

	// The broker is killed between its confirmation and settle. While it is away, the
	// next transfer succeeds; its event waits and uses up no attempt.
	confirmed := pay()
	s.Tick("relay")
	kit.Must(t, rabbit.Kill())
	waiting := pay()
	for range 3 {
		s.Try("relay")
	}
	if n := s.Count(`SELECT max(attempt_count) FROM integration.outbox_events WHERE status <> 'PUBLISHED'`); n != 0 {
		t.Errorf("%d attempts were used while the broker was away, want 0", n)
	}
	rabbit = kit.RabbitMQ(t, dir)
	carry(confirmed)
	carry(waiting)

	// An event that was confirmed and lost is published again by reconcile.
	lost := pay()
	s.Tick("relay")
	purge(t, rabbit.URL(), "transfer.events.settle")
	kit.Eventually(t, "reconcile publishes it again", func() bool {
		report, _ := s.Try("reconcile")
		return report.Retried > 0
	})
	carry(lost)
	for range 3 {
		s.Try("reconcile")
		carry(lost)
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE event_type = 'TransferSettled'`); n != 2*4+1 {
		t.Errorf("%d notifications, want 2 for each of 4 transfers and 1 for the opening", n)
	}
}

func purge(t *testing.T, url, queue string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	kit.Must(t, err)
	defer conn.Close()
	channel, err := conn.Channel()
	kit.Must(t, err)
	n, err := channel.QueuePurge(queue, false)
	kit.Must(t, err)
	if n == 0 {
		t.Error("the queue had nothing to lose")
	}
}
