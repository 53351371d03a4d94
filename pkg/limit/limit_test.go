package limit_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/limit"
	"github.com/miniserversystem/miniserver/test/kit"
)

// limiters returns a limiter that counts in Redis and one that counts by itself.
func limiters(t *testing.T) map[string]*limit.Limiter {
	return map[string]*limit.Limiter{"redis": shared(t, kit.Redis(t).URL()), "local": alone()}
}

// Two processes with 32 goroutines ask as fast as they can: they get the burst and the
// rate, no more and not much less.
func TestRateAndBurstAreKept(t *testing.T) {
	t.Parallel()
	url, one := kit.Redis(t).URL(), alone()
	// Only a machine that stalls for a second lets the bucket overflow.
	policy := limit.Policy{Name: "player", Rate: 50, Burst: 50}
	for name, processes := range map[string][2]*limit.Limiter{
		"redis": {shared(t, url), shared(t, url)},
		"local": {one, one},
	} {
		var allowed, refused atomic.Int64
		var asking sync.WaitGroup
		began := time.Now()
		for i := range 32 {
			asking.Go(func() {
				for time.Since(began) < time.Second {
					if processes[i%2].Allow(t.Context(), policy, "u_1").Allowed {
						allowed.Add(1)
					} else {
						refused.Add(1)
					}
				}
			})
		}
		asking.Wait()
		due := float64(policy.Burst) + float64(policy.Rate)*time.Since(began).Seconds()
		// The goroutines asked for one second.
		atLeast := 0.9 * float64(policy.Burst+policy.Rate)
		if got := float64(allowed.Load()); got > due+1 || got < atLeast {
			t.Errorf("%s: %.0f were allowed, want %.1f to %.1f", name, got, atLeast, due)
		}
		if refused.Load() == 0 {
			t.Errorf("%s: nothing was refused", name)
		}
		t.Logf("%s: %d allowed, %.1f due, %d refused", name, allowed.Load(), due, refused.Load())
	}
}

// RetryAfter and Reset of a result come true.
func TestRecovery(t *testing.T) {
	t.Parallel()
	const token, rounding = 125 * time.Millisecond, 100 * time.Microsecond
	policy := limit.Policy{Name: "p", Rate: 8, Burst: 3}
	for name, l := range limiters(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := func() limit.Result { return l.Allow(t.Context(), policy, "k") }
			first := ask()
			if !first.Allowed || first.Remaining != 2 || first.RetryAfter != 0 || (first.Reset-token).Abs() > rounding {
				t.Fatalf("first: %+v", first)
			}
			at := time.Now()
			refused := ask()
			for refused.Allowed {
				at = time.Now()
				refused = ask()
			}
			if refused.Remaining != 0 || refused.RetryAfter <= 0 || refused.RetryAfter > token+rounding ||
				(refused.Reset-refused.RetryAfter-2*token).Abs() > rounding {
				t.Fatalf("refused: %+v", refused)
			}
			kit.Eventually(t, "one is allowed again", func() bool { return ask().Allowed })
			if waited := time.Since(at); waited < refused.RetryAfter-rounding {
				t.Errorf("allowed after %s, but RetryAfter was %s", waited, refused.RetryAfter)
			}
			<-time.After(ask().Reset)
			if full := ask(); full.Remaining != 2 {
				t.Errorf("after the reset: %+v, want 2 left", full)
			}
		})
	}
}

// The whole burst is allowed, and each result says how much of it is left.
func TestBurst(t *testing.T) {
	t.Parallel()
	for name, l := range limiters(t) {
		for _, policy := range []limit.Policy{
			{Name: "hourly", Rate: 10, Period: time.Hour, Burst: 5},
			{Name: "daily", Rate: 1, Period: 24 * time.Hour, Burst: 100},
			{Name: "wrong", Rate: -1, Period: time.Hour, Burst: 0},
		} {
			burst := max(1, policy.Burst)
			for left := burst - 1; left >= 0; left-- {
				if r := l.Allow(t.Context(), policy, "k"); !r.Allowed || r.Remaining != left {
					t.Fatalf("%s, %s: %+v, want it allowed with %d left", name, policy.Name, r, left)
				}
			}
			if r := l.Allow(t.Context(), policy, "k"); r.Allowed {
				t.Errorf("%s, %s: after the burst: %+v, want it refused", name, policy.Name, r)
			}
			if r := l.Allow(t.Context(), policy, "another"); !r.Allowed {
				t.Errorf("%s, %s: another key: %+v, want it allowed", name, policy.Name, r)
			}
			policy.Name += "2"
			if r := l.Allow(t.Context(), policy, "k"); !r.Allowed {
				t.Errorf("%s: another policy: %+v, want it allowed", name, r)
			}
		}
	}
}

// Rounding takes no token away: each of 1000 callers has the whole burst.
func TestFirstOfTheBurst(t *testing.T) {
	t.Parallel()
	policy := limit.Policy{Name: "p", Rate: 7, Burst: 10}
	for name, l := range limiters(t) {
		for i := range 1000 {
			if r := l.Allow(t.Context(), policy, strconv.Itoa(i)); !r.Allowed || r.Remaining != 9 {
				t.Fatalf("%s, caller %d: %+v, want it allowed with 9 left", name, i, r)
			}
		}
	}
}

// Goroutines that overtake each other get no token twice. The rate is high, because they
// overtake by little; the burst is large, so that no pause hides a fault.
func TestLocalRateIsExact(t *testing.T) {
	t.Parallel()
	l, policy := alone(), limit.Policy{Name: "p", Rate: 50_000, Burst: 50_000}
	var allowed atomic.Int64
	var asking sync.WaitGroup
	began := time.Now()
	for range 32 {
		asking.Go(func() {
			for time.Since(began) < time.Second {
				if l.Allow(t.Context(), policy, "k").Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	asking.Wait()
	due := float64(policy.Burst) + float64(policy.Rate)*time.Since(began).Seconds()
	if got := float64(allowed.Load()); got > due+1 {
		t.Errorf("%.0f were allowed, want %.1f at most", got, due)
	}
	t.Logf("%d allowed, %.0f due", allowed.Load(), due)
}

// A request whose client hangs up is counted, and the connection to Redis is kept.
func TestHangingUpCounts(t *testing.T) {
	t.Parallel()
	client := connect(t, kit.Redis(t).URL())
	log := &lines{}
	l := limit.New(client, log.logger())
	l.SetPatience(patience)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	policy := limit.Policy{Name: "p", Rate: 1, Period: time.Hour, Burst: 50}
	for range 49 {
		if !l.Allow(gone, policy, "k").Allowed {
			t.Fatal("not allowed")
		}
	}
	if r := l.Allow(t.Context(), policy, "k"); !r.Allowed || r.Remaining != 0 {
		t.Errorf("got %+v, want it allowed with none left", r)
	}
	if n := log.count(saidAway); n != 0 {
		t.Errorf("%d lines say that Redis is away", n)
	}
	if n := client.PoolStats().Misses; n > 2 {
		t.Errorf("%d connections were made, want 2 at most", n)
	}
}

// Redis is asked once about a key that it refused, and again when the key may be allowed.
func TestFloodAsksRedisOnce(t *testing.T) {
	t.Parallel()
	client := connect(t, kit.Redis(t).URL())
	var commands asked
	client.AddHook(&commands)
	l := limit.New(client, slog.New(slog.DiscardHandler))
	l.SetPatience(kit.Patience)
	p := limit.Policy{Name: "flood", Rate: 1, Period: 2 * time.Second, Burst: 1}
	began := time.Now()
	if r := l.Allow(t.Context(), p, "k"); !r.Allowed {
		t.Fatalf("the first request is answered %+v", r)
	}
	first := l.Allow(t.Context(), p, "k")
	for range 1000 {
		if r := l.Allow(t.Context(), p, "k"); time.Since(began) < p.Period && (r.Allowed || r.RetryAfter <= 0 || r.RetryAfter >= first.RetryAfter || r.Reset >= first.Reset) {
			t.Fatalf("after %+v the next request is answered %+v", first, r)
		}
	}
	if n := commands.Load(); n > 3 { // a third one if this took two seconds
		t.Errorf("Redis was asked %d times, want 2", n)
	}
	if r := l.Allow(t.Context(), p, "another"); !r.Allowed {
		t.Errorf("another key is answered %+v", r)
	}
	kit.Eventually(t, "the key is allowed again", func() bool {
		r := l.Allow(t.Context(), p, "k")
		if !r.Allowed && r.RetryAfter <= 0 {
			t.Fatalf("the key is refused after its wait: %+v", r)
		}
		return r.Allowed
	})
	if took := time.Since(began); took < p.Period {
		t.Errorf("the key is allowed again after %s, want %s", took, p.Period)
	}
}
