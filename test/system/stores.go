package system

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Rows counts the rows of every table of every domain: what was refused must not
// have left anything anywhere.
func (s *System) Rows() string {
	s.T.Helper()
	var counts []string
	for _, table := range []string{
		"entitlement.entitlements", "entitlement.idempotency_keys", "entitlement.refunded_purchases",
		"entitlement.entitlement_audit", "entitlement.outbox_events",
		"notification.processed_events", "notification.notifications", "notification.notification_dlq",
	} {
		counts = append(counts, fmt.Sprint(table, " ", s.Count("SELECT count(*) FROM "+table)))
	}
	return strings.Join(counts, ", ")
}

// Untouched runs do and fails when it left a row.
func (s *System) Untouched(do func()) {
	s.T.Helper()
	before := s.Rows()
	do()
	if after := s.Rows(); after != before {
		s.T.Errorf("a refused request left rows:\nbefore %s\nafter  %s", before, after)
	}
}

// JetStream is a client of the system's broker, past the functions, and what closes it.
func JetStream(t *testing.T, s *System) (jetstream.JetStream, func()) {
	t.Helper()
	conn, err := nats.Connect(s.NATS.URL())
	kit.Must(t, err)
	js, err := jetstream.New(conn)
	kit.Must(t, err)
	return js, conn.Close
}

// Stores starts the stores of a system, and returns settings that lead to them, with
// the rights of a process that holds all functions.
func Stores(t testing.TB, listener net.Listener, environment ...string) (*System, map[string]string) {
	t.Helper()
	s := &System{T: t, Log: &Log{}, Seen: &Answers{seen: map[string]bool{}}}
	private, public, err := auth.NewKeyPair()
	kit.Must(t, err)
	s.URL = "http://" + listener.Addr().String()
	values := map[string]string{
		"GATEWAY_URL": s.URL, "OIDC_CLIENT_SECRET": issuer.WebClientSecret,
		"DEBUG_ENDPOINTS": "true", "IDENTITY_SIGNING_KEY": private, "IDENTITY_VERIFY_KEYS": public,
		"LOG_LEVEL": "debug",
	}
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	// A store that the test brings is not started once more.
	if values["NATS_URL"] == "" {
		s.NATS = kit.NATS(t, functions.Users())
		values["NATS_URL"] = s.NATS.URLAs(functions.TogetherUser)
	}
	if values["REDIS_URL"] == "" {
		s.RedisDir = t.TempDir()
		s.Redis = kit.StartRedis(t, s.RedisDir, functions.Users())
		values["REDIS_URL"] = s.Redis.URLAs(functions.TogetherUser)
	}
	if values["DATABASE_URL"] == "" {
		values["DATABASE_URL"] = kit.Database(t)
		s.Pool = kit.Connect(t, values["DATABASE_URL"])
	}
	kit.LeastRights(values)
	return s, values
}

// Count returns the one number that a query answers.
func (s *System) Count(sql string, args ...any) int {
	s.T.Helper()
	var n int
	kit.Must(s.T, s.Pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// Keys returns what Redis holds under a pattern.
func (s *System) Keys(pattern string) []string {
	s.T.Helper()
	client := s.QueueClient()
	defer client.Close()
	keys, err := client.Keys(s.T.Context(), pattern).Result()
	kit.Must(s.T, err)
	return keys
}
