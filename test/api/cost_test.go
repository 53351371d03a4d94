package api_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// paying is a system whose players have money, and how often it asked its stores.
type paying struct {
	*system.System
	postgres, redis    *kit.Link
	alice, cookie, key string
	from, to           string // accounts, of which the first is Alice's
}

func newPaying(t testing.TB) *paying {
	t.Helper()
	database, server := kit.Database(t), kit.Redis(t)
	p := &paying{}
	var databaseURL, redisURL string
	p.postgres, databaseURL = kit.Through(t, database)
	p.redis, redisURL = kit.Through(t, server.URL())
	s, people := system.StartWithPeople(t, "WAKES=false", "LOG_LEVEL=warn", "DATABASE_URL="+databaseURL, "REDIS_URL="+redisURL)
	s.Pool = kit.Connect(t, database)
	p.System, p.alice = s, people.Player(t, "alice")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{auth.RoleOperator}}})
	user := s.UserID(p.alice)
	p.from, p.to = s.Opened(operator, user, "1000"), s.Opened(operator, s.UserID(people.Player(t, "bob")), "1000")
	options, err := redis.ParseURL(server.URL())
	kit.Must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	p.cookie, err = session.NewStore(client, session.Limits{Idle: time.Hour, Absolute: time.Hour}).Create(t.Context(), session.Session{
		UserID: user, Issuer: people.URL, Subject: "alice", Roles: []string{auth.RolePlayer}, RenewAt: time.Now().Add(time.Hour),
	})
	kit.Must(t, err)
	p.key = s.TransferKey(p.alice)
	system.WantStatus(t, s.Pay(p.alice, p.key, p.from, p.to, "1"), http.StatusOK)
	return p
}

// A request asks its stores this often at most. One more round trip would slow down every
// caller, and no other test would notice.
func TestRoundTripsOfARequest(t *testing.T) {
	t.Parallel()
	p := newPaying(t)
	for _, c := range []struct {
		name            string
		postgres, redis int64
		status          int
		prepare         func() string // untimed; its result is what send needs
		send            func(prepared string) system.Answer
	}{
		{"an account, by token", 1, 1, http.StatusOK, nil, func(string) system.Answer { return p.Call(http.MethodGet, "/v1/me", p.alice, "") }},
		{"an account, by cookie", 1, 2, http.StatusOK, nil, func(string) system.Answer {
			return p.Call(http.MethodGet, "/v1/me", "", "", "Cookie: miniserver_session="+p.cookie)
		}},
		{"notifications", 1, 1, http.StatusOK, nil, func(string) system.Answer { return p.Call(http.MethodGet, "/v1/me/notifications", p.alice, "") }},
		{"a grant", 1, 1, http.StatusOK, unused, func(key string) system.Answer { return p.Grant(key, "u_"+key, "item1") }},
		{"a grant that was made", 1, 1, http.StatusOK, nil, func(string) system.Answer { return p.Grant("again", "u_again", "item1") }},
		{"a key for a transfer", 1, 2, http.StatusCreated, nil, func(string) system.Answer { return p.Call(http.MethodPost, "/v1/idempotency-keys", p.alice, "") }},
		{"a transfer", 2, 1, http.StatusOK, func() string { return p.TransferKey(p.alice) }, func(key string) system.Answer {
			return p.Pay(p.alice, key, p.from, p.to, "1")
		}},
		{"a transfer that was made", 1, 1, http.StatusOK, nil, func(string) system.Answer { return p.Pay(p.alice, p.key, p.from, p.to, "1") }},
	} {
		// Other work can only add to it, and the first one prepares statements: the least
		// of some tries counts.
		postgres, redis := int64(math.MaxInt64), int64(math.MaxInt64)
		for range 6 {
			prepared := ""
			if c.prepare != nil {
				prepared = c.prepare()
			}
			toPostgres, toRedis := p.postgres.Pieces.Load(), p.redis.Pieces.Load()
			system.WantStatus(t, c.send(prepared), c.status)
			postgres, redis = min(postgres, p.postgres.Pieces.Load()-toPostgres), min(redis, p.redis.Pieces.Load()-toRedis)
		}
		if postgres != c.postgres || redis != c.redis {
			t.Errorf("%s takes %d round trips to Postgres and %d to Redis, want %d and %d", c.name, postgres, redis, c.postgres, c.redis)
		}
	}
}

var used int

// unused returns a key that no request has had.
func unused() string { used++; return fmt.Sprint("cost-", used) }

// A request allocates this often at most, from the gateway to its answer.
func TestAllocationsOfARequest(t *testing.T) { // not parallel: what other tests allocate would count
	p := newPaying(t)
	gateway := p.Runtime.Here[functions.GatewayName]
	for _, c := range []struct {
		path, header, value string
		most                float64
	}{
		{"/v1/me", "Authorization", "Bearer " + p.alice, 150},
		{"/v1/me", "Cookie", "miniserver_session=" + p.cookie, 172},
		{"/v1/me/notifications", "Authorization", "Bearer " + p.alice, 118},
	} {
		least := math.Inf(1)
		for range 5 {
			least = min(least, testing.AllocsPerRun(20, func() {
				r := httptest.NewRequest(http.MethodGet, c.path, http.NoBody)
				r.Header.Set(c.header, c.value)
				w := httptest.NewRecorder()
				gateway.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					t.Fatalf("%s is answered %d %s", c.path, w.Code, w.Body)
				}
			}))
		}
		if least > c.most {
			t.Errorf("%s by %s allocates %.0f times, want %.0f at most", c.path, c.header, least, c.most)
		}
	}
}

// What a write adds to Postgres' log (WAL), which every commit waits for, and which every
// standby and backup gets. Writes at once share commits and statements.
func TestLogOfAWrite(t *testing.T) {
	t.Parallel()
	database := kit.LoneDatabase(t) // the log is that of a whole server
	s, people := system.StartWithPeople(t, "WAKES=false", "LOG_LEVEL=warn", "DATABASE_URL="+database)
	s.Pool = kit.Connect(t, database)
	alice := people.Player(t, "alice")
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{auth.RoleOperator}}})
	user := s.UserID(alice)
	const writes, crowd, rounds = 32, 32, 4
	accounts := make([]string, 2*writes)
	for i := range accounts {
		accounts[i] = s.Opened(operator, user, fmt.Sprint(1000+i))
	}
	for _, c := range []struct {
		name string
		most int64 // bytes a write
		send func() func(n int) int
	}{
		{"a grant", 2000, func() func(int) int {
			key := unused()
			return func(n int) int { return s.Grant(fmt.Sprint(key, "-", n), fmt.Sprint("u_", key, n), "item1").Status }
		}},
		{"a transfer", 3300, func() func(int) int {
			keys := make([]string, writes)
			for i := range keys {
				keys[i] = s.TransferKey(alice)
			}
			return func(n int) int { return s.Pay(alice, keys[n], accounts[2*n], accounts[2*n+1], "1").Status }
		}},
	} {
		for _, workers := range []int{1, crowd} {
			least := int64(math.MaxInt64) // other work can only add to it
			for range rounds {
				send := c.send()
				statuses := make([]int, writes)
				var before, bytes int64
				kit.Must(t, s.Pool.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn() - '0/0'`).Scan(&before))
				system.AtOnce(workers, func(worker int) {
					for n := worker; n < writes; n += workers {
						statuses[n] = send(n)
					}
				})
				kit.Must(t, s.Pool.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn() - '0/0' - $1::bigint`, before).Scan(&bytes))
				for n, status := range statuses {
					if status != http.StatusOK {
						t.Fatalf("%s, %d at once: number %d is answered %d", c.name, workers, n, status)
					}
				}
				least = min(least, bytes/writes)
			}
			t.Logf("%s, %d at once: %d bytes of log", c.name, workers, least)
			if least > c.most {
				t.Errorf("%s, %d at once, adds %d bytes to the log, want %d at most", c.name, workers, least, c.most)
			}
		}
	}
}
