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

// While Redis is stopped the limit goes on in the process; when it is back, what
// it counted before counts again. Each change is one line in the log.
func TestRedisStopsAndComesBack(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), &lines{}
	server := kit.StartRedis(t, dir)
	l := limit.New(connect(t, server.URL()), log.logger())
	l.SetPatience(patience) // a slow answer is not what this is about
	for left := 9; left >= 4; left-- {
		if r := l.Allow(t.Context(), hourly, "k"); !r.Allowed || r.Remaining != left {
			t.Fatalf("%d should be left: %+v", left, r)
		}
	}
	l.SetPatience(limit.Patience)
	// The second time is told of as well, and finds the bucket of the first.
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
		// It is asked again in vain, and that is not told.
		for began := time.Now(); time.Since(began) < limit.RetryEvery+2*limit.Patience; kit.Pause(10 * time.Millisecond) {
			if l.Allow(t.Context(), hourly, "k").Allowed {
				t.Fatal("more than the burst")
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
		t.Errorf("back: %+v", r)
	}
	if away, back := log.count(saidAway), log.count(saidBack); away != 2 || back != 2 {
		t.Errorf("%d lines say away, %d say back", away, back)
	}
}

// A Redis that hangs costs one request 100 ms, once a second, and the others
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
				t.Errorf("the first took %s", first)
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
				t.Errorf("Redis was asked %d times", n)
			}
			// On a busy machine others may be slow for other reasons.
			if slow > 2+clients || took[len(took)/2] > time.Millisecond {
				t.Errorf("%d of %d took 90 ms; the median is %s", slow, len(took), took[len(took)/2])
			}
			if away, back := log.count(saidAway), log.count(saidBack); away != 1 || back != 0 {
				t.Errorf("%d lines say away, %d say back", away, back)
			}
		})
	}
}

// When it goes on, it is used again, whatever was left unanswered.
func TestRedisGoesOnAfterAPause(t *testing.T) {
	t.Parallel()
	client := connect(t, kit.Redis(t).URL())
	l := limit.New(client, slog.New(slog.DiscardHandler))
	if err := client.Do(t.Context(), "CLIENT", "PAUSE", 1500, "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	l.Allow(t.Context(), hourly, "k")
	if l.Shared() {
		t.Fatal("it answered")
	}
	kit.Eventually(t, "Redis is used again", func() bool {
		l.Allow(t.Context(), hourly, "k")
		return l.Shared()
	})
}
