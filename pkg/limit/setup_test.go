package limit_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/limit"
	"github.com/miniserversystem/miniserver/test/kit"
)

const patience = 20 * time.Second

func TestMain(m *testing.M) {
	logging.Disable() // the client would print every connection that was refused
	os.Exit(kit.Main(m))
}

// connect returns a client with the library's usual timeouts.
func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// shared returns a limiter on Redis that does not become local on a busy machine.
func shared(t testing.TB, url string) *limit.Limiter {
	t.Helper()
	l := limit.New(connect(t, url), slog.New(slog.DiscardHandler))
	l.SetPatience(patience)
	return l
}

func alone() *limit.Limiter { return limit.New(nil, slog.New(slog.DiscardHandler)) }

// lines is a log whose lines can be counted.
type lines struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(b)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) count(what string) int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return strings.Count(l.text.String(), what)
}

const (
	saidAway = "each process's own"
	saidBack = "shared again"
)

// asked counts the commands that go to Redis.
type asked struct{ atomic.Int64 }

func (a *asked) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a *asked) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			a.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// silent accepts connections and never answers; it returns its address.
func silent(t testing.TB) string {
	t.Helper()
	var listener net.Listener
	kit.Eventually(t, "a free port", func() bool {
		port, err := proc.FreePort(0)
		if err == nil {
			listener, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		}
		return err == nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			c, err := listener.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
		}
		for _, c := range open {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().String()
}
