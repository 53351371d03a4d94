package outage_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A hanging Redis delays requests with a token by a tenth of a second, now and then,
// while those with sessions wait for it.
func TestRedisHangsUnderLoad(t *testing.T) {
	t.Parallel()
	redis := kit.Redis(t)
	toRedis, redisURL := kit.Through(t, redis.URL())
	s, people := system.StartWithPeople(t, "WAKES=false", "REDIS_URL="+redisURL)
	const duration, clients, sessions = 3 * time.Second, 4, 30
	// Each client is a player and sends at most 200 requests a second; the limit is 300.
	var tokens, owned [clients]string
	for i := range tokens {
		tokens[i] = people.Player(t, fmt.Sprint("player", i))
		owned[i] = "/v1/users/" + s.UserID(tokens[i]) + "/entitlements"
		system.WantStatus(t, s.Call(http.MethodGet, owned[i], tokens[i], ""), http.StatusOK)
	}
	toRedis.Hang()
	began := time.Now()
	var mutex sync.Mutex
	var took, waited []time.Duration
	ask := func(list *[]time.Duration, status int, path, token string, headers ...string) {
		at := time.Now()
		a := s.Call(http.MethodGet, path, token, "", headers...)
		mutex.Lock()
		defer mutex.Unlock()
		*list = append(*list, time.Since(at))
		if a.Status != status {
			t.Errorf("answered %d %s, want %d", a.Status, a.Body, status)
		}
	}
	var group sync.WaitGroup
	for i := range clients + sessions {
		group.Go(func() {
			for time.Since(began) < duration {
				if i < clients {
					ask(&took, http.StatusOK, owned[i], tokens[i])
					kit.Pause(5 * time.Millisecond)
				} else {
					ask(&waited, http.StatusServiceUnavailable, owned[0], "", "Cookie: miniserver_session="+strings.Repeat("A", 43))
				}
			}
		})
	}
	group.Wait()
	slices.Sort(took)
	slices.Sort(waited)
	slow := len(took) - func() int { n, _ := slices.BinarySearch(took, 200*time.Millisecond); return n }()
	t.Logf("%d requests with a token: median %s, 99%% %s, most %s, %d above 200 ms; %d with a session: median %s, most %s",
		len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1], slow, len(waited), waited[len(waited)/2], waited[len(waited)-1])
	// On a busy machine some are slow for other reasons; one that waits for Redis takes a
	// second.
	if slow > len(took)/5 || took[len(took)/2] > 100*time.Millisecond || took[len(took)-1] > 900*time.Millisecond {
		t.Errorf("with a token: median %s, most %s, %d of %d above 200 ms", took[len(took)/2], took[len(took)-1], slow, len(took))
	}
	if most := waited[len(waited)-1]; most > 4*time.Second {
		t.Errorf("a request with a session took %s", most)
	}
	toRedis.Mend()
	kit.Eventually(t, "Redis answers again", func() bool {
		return s.Call(http.MethodGet, owned[0], "", "", "Cookie: miniserver_session="+strings.Repeat("A", 43)).Status == http.StatusUnauthorized
	})
}

// Without Redis, each process limits by itself.
func TestLimitsWithoutRedis(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "LIMIT_ANONYMOUS_RATE=1", "LIMIT_ANONYMOUS_BURST=20", "LIMIT_PLAYER_RATE=1", "LIMIT_PLAYER_BURST=30")
	alice := people.Player(t, "alice")
	system.WantStatus(t, s.Call(http.MethodGet, system.MePath, alice, ""), http.StatusOK)
	kit.Must(t, s.Redis.Stop())
	for what, test := range map[string]struct {
		path, token string
		burst       int
	}{"nobody": {"/", "", 20}, "a player": {system.MePath, alice, 30}} {
		began, allowed := time.Now(), 0
		for range 3 * test.burst {
			a := s.Call(http.MethodGet, test.path, test.token, "")
			if len(a.Header.Values("RateLimit-Policy")) == 0 {
				t.Fatalf("%s: the answer has no RateLimit-Policy: %v", what, a.Header)
			}
			if a.Status == http.StatusOK {
				allowed++
				continue
			}
			system.WantProblem(t, a, http.StatusTooManyRequests, "rate_limited")
			if a.Header.Get("Retry-After") == "" {
				t.Error("Retry-After is missing")
			}
		}
		if most := test.burst + 2 + int(time.Since(began).Seconds()); allowed < test.burst || allowed > most {
			t.Errorf("%s: %d requests passed, want %d", what, allowed, test.burst)
		}
	}
}

// An overview does not hang with Postgres.
func TestOverviewWhilePostgresHangs(t *testing.T) {
	t.Parallel()
	toPostgres, databaseURL := kit.Through(t, kit.Database(t))
	s, people := system.StartWithPeople(t, "WAKES=false", "DATABASE_URL="+databaseURL, "OVERVIEW_TIMEOUT=1s")
	alice := people.Player(t, "alice")
	system.WantStatus(t, s.Call(http.MethodGet, system.MePath, alice, ""), http.StatusOK)
	toPostgres.Hang()
	began := time.Now()
	system.WantOverview(t, s.Call(http.MethodGet, system.OverviewPath, alice, ""), map[string]string{"account": "timeout", "entitlements": "timeout"})
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the overview took %s", took)
	}
	toPostgres.Mend()
	kit.Eventually(t, "all parts are there again", func() bool {
		return len(s.Call(http.MethodGet, system.OverviewPath, alice, "").JSON(t)["errors"].(map[string]any)) == 0
	})
}
