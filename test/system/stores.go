package system

import (
	"context"
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

// Rows counts the rows of every table: a refused request must not have added any. Marks of
// reconcile are its own; any tick of it may write them.
func (s *System) Rows() string {
	s.T.Helper()
	var counts string
	kit.Must(s.T, s.Pool.QueryRow(context.Background(), `
		SELECT string_agg(name || ' ' || (xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM ' || name, false, true, '')))[1]::text, ', ' ORDER BY name)
		FROM (SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
		      WHERE schemaname IN ('account', 'core', 'entitlement', 'integration', 'notification') AND tablename <> 'outbox_reconciled') tables`).Scan(&counts))
	return counts
}

// Untouched fails if do changed the number of rows.
func (s *System) Untouched(do func()) {
	s.T.Helper()
	before := s.Rows()
	do()
	if after := s.Rows(); after != before {
		s.T.Errorf("a refused request left rows:\nbefore %s\nafter  %s", before, after)
	}
}

// JetStream returns a client of the system's broker, and what closes it.
func JetStream(t *testing.T, s *System) (jetstream.JetStream, func()) {
	t.Helper()
	conn, err := nats.Connect(s.NATS.URL())
	kit.Must(t, err)
	js, err := jetstream.New(conn)
	kit.Must(t, err)
	return js, conn.Close
}

// Stores starts the stores of a system, and returns settings to connect to them with the
// rights of a process that holds all functions.
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
	// A store that the test brings is not started.
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

// Count returns the one number that a query selects.
func (s *System) Count(sql string, args ...any) int {
	s.T.Helper()
	var n int
	kit.Must(s.T, s.Pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// Keys returns the keys in Redis that match pattern.
func (s *System) Keys(pattern string) []string {
	s.T.Helper()
	client := s.QueueClient()
	defer client.Close()
	keys, err := client.Keys(s.T.Context(), pattern).Result()
	kit.Must(s.T, err)
	return keys
}
