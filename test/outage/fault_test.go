package outage_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	natsserver "github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// inject publishes a message without the relay.
func inject(s *system.System, header map[string]string, data []byte) {
	s.T.Helper()
	conn, err := nats.Connect(s.NATS.URL())
	kit.Must(s.T, err)
	defer conn.Close()
	js, err := conn.JetStream()
	kit.Must(s.T, err)
	msg := &nats.Msg{Subject: event.EntitlementSubject, Header: nats.Header{}, Data: data}
	for name, value := range header {
		msg.Header[name] = []string{value}
	}
	_, err = js.PublishMsg(msg)
	kit.Must(s.T, err)
}

// encoded returns a message of our own format with fields that a test chooses.
func encoded(t testing.TB, id, payload string) (map[string]string, []byte) {
	t.Helper()
	m, err := event.Encode(event.Record{ID: id, Type: "EntitlementGranted", Payload: []byte(payload)})
	kit.Must(t, err)
	return map[string]string{"ce-id": id, "ce-type": m.Type, "ce-time": time.Now().UTC().Format(time.RFC3339)}, m.Data
}

// Poison of every kind lies among good events: the good ones become notifications; the
// poison becomes dead letters, with all bytes and headers, and never comes again.
func TestPoisonAmongEvents(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	kit.Must(t, s.Runtime.NATS().Ready(t.Context()))
	var long string // random, so that it cannot be compressed to fit
	for range 500 {
		long += uuid.NewString()
	}
	poison := map[string]func() (map[string]string, []byte){
		"no UUID": func() (map[string]string, []byte) { return encoded(t, "x", `{"event_id":"x","user_id":"u"}`) },
		"NUL": func() (map[string]string, []byte) {
			id := uuid.NewString()
			return encoded(t, id, `{"event_id":"`+id+`","user_id":"u","source":"\u0000"}`)
		},
		"unknown type": func() (map[string]string, []byte) {
			return map[string]string{"ce-id": "y", "ce-type": "other.v1.Thing", "a": "1"}, []byte{0, 0xff, 1}
		},
		"no headers": func() (map[string]string, []byte) { return nil, []byte("hello") },
		"no recipient": func() (map[string]string, []byte) {
			id := uuid.NewString()
			return encoded(t, id, `{"event_id":"`+id+`"}`)
		},
		"recipient too long for an index": func() (map[string]string, []byte) {
			id := uuid.NewString()
			return encoded(t, id, `{"event_id":"`+id+`","user_id":"`+long+`"}`)
		},
	}
	good := 0
	grant := func(n int) {
		for range n {
			good++
			s.Grant(fmt.Sprint("k", good), fmt.Sprint("u_", good), "item1")
		}
		for s.Tick("relay").More {
		}
	}
	grant(22)
	for _, made := range poison {
		header, data := made()
		inject(s, header, data)
		grant(4)
	}
	s.TryTick("notify")
	if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id LIKE 'u\_%'`); n != good {
		t.Errorf("%d of %d good events are notifications after one tick", n, good)
	}
	for name, made := range poison {
		if name == "NUL" || name == "no recipient" || strings.HasPrefix(name, "recipient") {
			continue // these have ids of their own each time
		}
		_, data := made()
		if n := s.Count(`SELECT count(*) FROM notification.notification_dlq WHERE raw_message = $1 AND notification_id IS NULL`, data); n != 1 {
			t.Errorf("%s: %d dead letters, want 1", name, n)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notification_dlq`); n != len(poison) {
		t.Errorf("%d dead letters, want %d", n, len(poison))
	}
	if n := s.Count(`SELECT count(*) FROM notification.notification_dlq WHERE raw_headers->'a' = '["1"]'`); n != 1 {
		t.Error("no dead letter has the headers")
	}
	if n := unacknowledged(s); n != 0 {
		t.Errorf("%d messages are not acknowledged", n)
	}
}

// unacknowledged counts the messages that notify has not dealt with.
func unacknowledged(s *system.System) int {
	s.T.Helper()
	conn, err := nats.Connect(s.NATS.URL())
	kit.Must(s.T, err)
	defer conn.Close()
	js, err := conn.JetStream()
	kit.Must(s.T, err)
	kit.Must(s.T, conn.Flush())
	info, err := js.ConsumerInfo(jetstream.StreamName(event.EntitlementSubject), "notify")
	kit.Must(s.T, err)
	return info.NumAckPending + int(info.NumPending)
}

// Postgres fails during notify: nothing becomes a dead letter, every message comes
// again, and all become notifications when it is back.
func TestPostgresAwayIsNoPoison(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for n := range 10 {
		s.Grant(fmt.Sprint("k", n), fmt.Sprint("u_", n), "item1")
	}
	s.Tick("relay")
	// The table is renamed and the connections are cut: notify meets both.
	for _, sql := range []string{
		`ALTER TABLE notification.processed_events RENAME TO away`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
	} {
		_, err := s.Pool.Exec(t.Context(), sql)
		kit.Must(t, err)
	}
	for range 3 {
		if code := s.TryTick("notify"); code == http.StatusOK && unacknowledged(s) == 0 {
			t.Fatal("notify reports success")
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notification_dlq`); n != 0 {
		t.Fatalf("%d dead letters, want 0", n)
	}
	_, err := s.Pool.Exec(t.Context(), `ALTER TABLE notification.away RENAME TO processed_events`)
	kit.Must(t, err)
	kit.Eventually(t, "all are notifications", func() bool {
		s.TryTick("notify")
		return s.Count(`SELECT count(*) FROM notification.notifications`) == 10
	})
	if n := s.Count(`SELECT count(*) FROM notification.notification_dlq`); n != 0 {
		t.Errorf("%d dead letters, want 0", n)
	}
}

// NATS is away, and comes back without its store: grants succeed meanwhile, and what is
// granted then and later is delivered once.
func TestBrokerLosesItsStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, err := natsserver.Start(t.Context(), natsserver.Options{Dir: dir})
	kit.Must(t, err)
	t.Cleanup(func() { _ = own.Stop() })
	s := system.Start(t, "WAKES=false", "NATS_URL="+own.URL())
	tickAll := func() {
		for _, function := range []string{"relay", "notify", "deliver"} {
			s.TryTick(function)
		}
	}
	s.Grant("before", "u_1", "item1")
	tickAll()
	kit.Must(t, own.Stop())
	if a := s.Grant("meanwhile", "u_2", "item1"); a.Status != http.StatusOK {
		t.Fatalf("a grant without the broker answered %d %s, want 200", a.Status, a.Body)
	}
	for range 12 {
		tickAll()
	}
	kit.Must(t, os.RemoveAll(filepath.Join(dir, "jetstream")))
	again, err := natsserver.Start(t.Context(), natsserver.Options{Dir: dir})
	kit.Must(t, err)
	t.Cleanup(func() { _ = again.Stop() })
	s.Grant("after", "u_3", "item1")
	kit.Eventually(t, "three are delivered", func() bool {
		tickAll()
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) == 3
	})
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status <> 'PUBLISHED' OR attempt_count > 1`); n != 0 {
		t.Errorf("%d events failed or used more than one attempt", n)
	}
}

// The modes that statements may run in behind a transaction pooler.
func TestWholeSystemInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := system.Start(t, "WAKES=false", "POSTGRES_EXEC_MODE="+mode)
			s.Tick("relay") // creates the stream
			inject(s, map[string]string{"ce-id": "x"}, []byte{0xff})
			s.Grant("k", "u_1", "item1")
			s.Revoke("r", "u_1", "item1")
			for _, function := range []string{"relay", "notify", "deliver", "cleanup"} {
				if code := s.TryTick(function); code != http.StatusOK {
					t.Errorf("the tick of %s answered %d, want 200", function, code)
				}
			}
			if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`); n != 2 {
				t.Errorf("%d of 2 notifications are SENT", n)
			}
			if n := s.Count(`SELECT count(*) FROM notification.notification_dlq`); n != 1 {
				t.Errorf("%d dead letters, want 1", n)
			}
			if a := s.Call(http.MethodGet, "/debug/notification/inbox/u_1", s.Operator, ""); a.Status != http.StatusOK || !bytes.Contains(a.Body, []byte("EntitlementRevoked")) {
				t.Errorf("the inbox answered %d %s, want EntitlementRevoked", a.Status, a.Body)
			}
		})
	}
}

// While the broker is away, grants are answered and their events wait.
func TestGrantsGoOnWithoutTheBroker(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false") // a wake's drain would coalesce with the tick below
	kit.Must(t, s.NATS.Stop())
	for n := range 5 {
		if a := s.Grant(fmt.Sprint("k", n), "u_1", "item1"); a.Status != http.StatusOK {
			t.Fatalf("answered %d %s, want 200", a.Status, a.Body)
		}
	}
	if code := s.TryTick("relay"); code != http.StatusServiceUnavailable {
		t.Errorf("the relay answered %d, want 503", code)
	}
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status = 'PENDING' AND attempt_count = 0`); n != 5 {
		t.Errorf("%d of 5 events wait", n)
	}
}

// The log channel's lines are deliveries: no log level suppresses them.
func TestLogChannelIsNotSilenced(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false", "LOG_LEVEL=error")
	s.Grant("k1", "u_1", "item1")
	for _, function := range []string{"relay", "notify", "deliver"} {
		s.Tick(function)
	}
	if log := s.Log.String(); strings.Count(log, `"msg":"notification"`) != 1 {
		t.Errorf("the log lacks the one notification: %q", log)
	}
}
