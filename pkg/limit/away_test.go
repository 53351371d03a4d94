package limit_test

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/limit"
	"github.com/miniserversystem/miniserver/test/kit"
)

var hourly = limit.Policy{Name: "hourly", Rate: 1, Period: time.Hour, Burst: 10}

// While Redis is stopped each process limits by itself; when Redis is back, its earlier
// counts hold again. Each change is one line in the log.
func TestRedisStopsAndComesBack(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), &lines{}
	server := kit.StartRedis(t, dir)
	l := limit.New(connect(t, server.URL()), log.logger())
	l.SetPatience(patience) // a slow answer must not make the limiter local
	for left := 9; left >= 4; left-- {
		if r := l.Allow(t.Context(), hourly, "k"); !r.Allowed || r.Remaining != left {
			t.Fatalf("got %+v, want it allowed with %d left", r, left)
		}
	}
	l.SetPatience(limit.Patience)
	// The second stop is logged as well, and finds the local bucket of the first one.
	for _, burst := range []int{hourly.Burst, 0} {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		allowed := 0
		for range 100 {
			if l.Allow(t.Context(), hourly, "k").Allowed {
				allowed++
			}
		}
		if allowed != burst || l.Shared() {
			t.Errorf("%d were allowed, want %d; shared is %t", allowed, burst, l.Shared())
		}
		// The limiter asks Redis again in vain, and does not log that.
		for began := time.Now(); time.Since(began) < limit.RetryEvery+2*limit.Patience; kit.Pause(10 * time.Millisecond) {
			if l.Allow(t.Context(), hourly, "k").Allowed {
				t.Fatal("more than the burst is allowed")
			}
		}
		server = kit.StartRedis(t, dir)
		kit.Eventually(t, "Redis is used again", func() bool {
			l.Allow(t.Context(), hourly, "another")
			return l.Shared()
		})
	}
	l.SetPatience(patience)
	if r := l.Allow(t.Context(), hourly, "k"); !r.Allowed || r.Remaining != 3 {
		t.Errorf("with Redis back: %+v, want it allowed with 3 left", r)
	}
	if away, back := log.count(saidAway), log.count(saidBack); away != 2 || back != 2 {
		t.Errorf("%d lines say away and %d back, want 2 each", away, back)
	}
}

// A Redis that hangs delays one request a second by 100 ms, and the others by
// microseconds.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	const clients, duration = 8, 2500 * time.Millisecond
	paused := connect(t, kit.Redis(t).URL())
	for name, client := range map[string]*redis.Client{
		"accepts and says nothing": connect(t, "redis://"+silent(t)),
		"answered before":          paused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, commands := &lines{}, &asked{}
			client.AddHook(commands)
			l := limit.New(client, log.logger())
			if client == paused {
				l.SetPatience(patience)
				l.Allow(t.Context(), hourly, "k")
				l.SetPatience(limit.Patience)
				if err := client.Do(t.Context(), "CLIENT", "PAUSE", time.Minute.Milliseconds(), "ALL").Err(); err != nil {
					t.Fatal(err)
				}
				commands.Store(0)
			}
			began := time.Now()
			l.Allow(t.Context(), hourly, "k")
			if first := time.Since(began); first < limit.Patience || first > 10*limit.Patience {
				t.Errorf("the first request took %s, want about %s", first, limit.Patience)
			}
			var mutex sync.Mutex
			var took []time.Duration
			var asking sync.WaitGroup
			for range clients {
				asking.Go(func() {
					for time.Since(began) < duration {
						at := time.Now()
						l.Allow(t.Context(), hourly, "k")
						d := time.Since(at)
						mutex.Lock()
						took = append(took, d)
						mutex.Unlock()
						kit.Pause(100 * time.Microsecond)
					}
				})
			}
			asking.Wait()
			slices.Sort(took)
			slow := len(took) - func() int { i, _ := slices.BinarySearch(took, limit.Patience*9/10); return i }()
			t.Logf("%d requests, %d commands, %d slow, median %s, 99%% %s", len(took), commands.Load(), slow, took[len(took)/2], took[len(took)*99/100])
			if n := commands.Load(); n < 2 || n > 3 { // at 0, 1.1 and 2.2 s
				t.Errorf("Redis was asked %d times, want 2 or 3", n)
			}
			// On a busy machine other requests may be slow, too.
			if slow > 2+clients || took[len(took)/2] > time.Millisecond {
				t.Errorf("%d of %d took 90 ms, want %d at most; the median is %s, want 1 ms at most", slow, len(took), 2+clients, took[len(took)/2])
			}
			if away, back := log.count(saidAway), log.count(saidBack); away != 1 || back != 0 {
				t.Errorf("%d lines say away, want 1; %d say back, want none", away, back)
			}
		})
	}
}

// When a paused Redis continues, it is used again, although commands went unanswered.
func TestRedisGoesOnAfterAPause(t *testing.T) {
	t.Parallel()
	client := connect(t, kit.Redis(t).URL())
	l := limit.New(client, slog.New(slog.DiscardHandler))
	if err := client.Do(t.Context(), "CLIENT", "PAUSE", 1500, "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	l.Allow(t.Context(), hourly, "k")
	if l.Shared() {
		t.Fatal("the paused Redis answered")
	}
	kit.Eventually(t, "Redis is used again", func() bool {
		l.Allow(t.Context(), hourly, "k")
		return l.Shared()
	})
}
