package limit_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/limit"
	"github.com/miniserversystem/miniserver/test/kit"
)

var three = limit.Places{Name: "streams", Most: 3}

// hold takes a place, and ends the test if there is none.
func hold(t testing.TB, l *limit.Limiter, key string) (leave func()) {
	t.Helper()
	leave, ok := l.Hold(t.Context(), three, key)
	if !ok {
		t.Fatalf("no place for %s, want one", key)
	}
	return leave
}

// full fails the test unless key has no free place.
func full(t testing.TB, l *limit.Limiter, key string) {
	t.Helper()
	if leave, ok := l.Hold(t.Context(), three, key); ok {
		leave()
		t.Errorf("a place for %s, want none: %d are open", key, three.Most)
	}
}

// brief returns a limiter and its client, as another process would have. Redis forgets its
// places 3 s after its last command.
func brief(t testing.TB, url string) (*limit.Limiter, *redis.Client) {
	t.Helper()
	client := connect(t, url)
	l := limit.New(client, slog.New(slog.DiscardHandler))
	l.SetPatience(patience)
	l.SetLifetime(3 * time.Second)
	return l, client
}

// A key's places are counted over all processes; one that is left is free at once.
func TestHold(t *testing.T) {
	t.Parallel()
	server := kit.StartRedis(t, t.TempDir())
	one, another := shared(t, server.URL()), shared(t, server.URL())
	first, second := hold(t, one, "alice"), hold(t, another, "alice")
	third := hold(t, one, "alice")
	full(t, one, "alice")
	full(t, another, "alice")
	hold(t, another, "bob")()
	second()
	second() // frees nothing the second time
	fourth := hold(t, one, "alice")
	full(t, another, "alice")
	for _, leave := range []func(){first, third, fourth} {
		leave()
	}
	if keys, err := connect(t, server.URL()).Keys(t.Context(), "*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("after all have left Redis holds %v, %v, want nothing", keys, err)
	}
}

// The places of a killed process are free when their lifetime is over; those of a process
// that lives are not.
func TestHoldOfAKilledProcess(t *testing.T) {
	t.Parallel()
	server := kit.StartRedis(t, t.TempDir())
	alive, _ := brief(t, server.URL())
	killed, connection := brief(t, server.URL())
	defer hold(t, alive, "alice")()
	hold(t, killed, "alice")
	hold(t, killed, "alice")
	full(t, alive, "alice")
	_ = connection.Close() // it neither refreshes nor leaves any more
	for range 2 {
		kit.Eventually(t, "a place of the killed process is free", func() bool {
			leave, ok := alive.Hold(t.Context(), three, "alice")
			if ok {
				t.Cleanup(leave)
			}
			return ok
		})
	}
	full(t, alive, "alice") // its place is older than the lifetime, but was refreshed
}

// Without Redis open places stay open, and each process gives a key as many as it may
// have. When Redis is back, even without its data, all of them are counted again.
func TestHoldWithoutRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := kit.StartRedis(t, dir)
	one, _ := brief(t, server.URL())
	another, _ := brief(t, server.URL())
	first := hold(t, one, "alice")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	leaves := []func(){first, hold(t, one, "alice"), hold(t, one, "alice"), hold(t, another, "alice")}
	full(t, one, "alice")
	client := connect(t, kit.StartRedis(t, dir).URL())
	key := "open:limit:{streams:alice}"
	kit.Eventually(t, "all that are open are counted again", func() bool {
		return client.ZCard(t.Context(), key).Val() == int64(len(leaves))
	})
	// Redis counts a place a moment before the limiter knows that it did.
	kit.Eventually(t, "no other is given", func() bool {
		leave, ok := another.Hold(t.Context(), three, "alice")
		if ok {
			leave()
		}
		return !ok
	})
	for _, leave := range leaves {
		leave()
	}
	kit.Eventually(t, "nothing is open", func() bool { return client.Exists(t.Context(), key).Val() == 0 })
}

// onPipeline is a redis.Hook that calls do before the first pipeline is sent.
type onPipeline struct {
	once sync.Once
	do   func()
}

func (o *onPipeline) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (o *onPipeline) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (o *onPipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		o.once.Do(o.do)
		return next(ctx, commands)
	}
}

// A place that is left while it is refreshed does not come back.
func TestLeaveWhileRefreshed(t *testing.T) {
	t.Parallel()
	url := kit.Redis(t).URL()
	l, client := brief(t, url)
	leave, left := hold(t, l, "alice"), make(chan struct{})
	client.AddHook(&onPipeline{do: func() {
		go func() { leave(); close(left) }()
		select { // it has to wait for this refresh, so that no more than a moment shows it
		case <-left:
		case <-time.After(300 * time.Millisecond):
		}
	}})
	<-left
	if n := connect(t, url).Exists(t.Context(), "open:limit:{streams:alice}").Val(); n != 0 {
		t.Error("the place that was left is counted again")
	}
}
