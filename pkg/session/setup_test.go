package session_test

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redisserver "github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // it would log every dial to a Redis that a test stopped
	os.Exit(kit.Main(m))
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var (
	limits  = session.Limits{Idle: 10 * time.Minute, Absolute: time.Hour}
	errTest = errors.New("the test says no")
)

// fixture is a store on a Redis of the test's own.
type fixture struct {
	t      testing.TB
	ctx    context.Context
	server *redisserver.Server
	client redis.UniversalClient // a second client, to look into Redis
	store  *session.Store
}

func setup(t testing.TB) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	t.Cleanup(cancel)
	f := &fixture{t: t, ctx: ctx, server: kit.Redis(t)}
	f.client = f.connect()
	f.store = f.with(limits)
	return f
}

// connect returns a new client, as another process would have.
func (f *fixture) connect(hooks ...redis.Hook) redis.UniversalClient {
	f.t.Helper()
	options, err := redis.ParseURL(f.server.URL())
	if err != nil {
		f.t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	for _, hook := range hooks {
		client.AddHook(hook)
	}
	f.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (f *fixture) with(l session.Limits, hooks ...redis.Hook) *session.Store {
	f.t.Helper()
	return session.NewStore(f.connect(hooks...), l)
}

const (
	issuer  = "https://issuer.example/realms/game"
	sid     = "sid-5c41b1a0"
	subject = "subject-77aa"
)

// sample returns a session with every field set, not due for renewal.
func sample() session.Session {
	return session.Session{
		UserID: "u_01h455vb4pex5vsknk084sn02q", Issuer: issuer, Subject: subject, Client: "console", SID: sid,
		Roles: []string{"operator", "player"}, AuthTime: time.Now().UTC().Truncate(time.Second),
		IDToken: "id-token-of-the-sample", RefreshToken: "refresh-token-of-the-sample", RenewAt: time.Now().Add(5 * time.Minute).UTC(),
	}
}

// due returns a sample whose tokens must be renewed.
func due() session.Session {
	s := sample()
	s.RenewAt = time.Now().Add(-time.Second).UTC()
	return s
}

func (f *fixture) create(s session.Session) (cookie string) {
	f.t.Helper()
	cookie, err := f.store.Create(f.ctx, s)
	if err != nil {
		f.t.Fatal(err)
	}
	return cookie
}

// load returns the session of a cookie, and fails the test unless Load finds the same, but
// for its tokens.
func (f *fixture) load(cookie string) session.Session {
	f.t.Helper()
	loaded, err := f.store.Load(f.ctx, cookie)
	if err != nil {
		f.t.Fatal(err)
	}
	stored, err := f.store.Stored(f.ctx, cookie)
	if err != nil {
		f.t.Fatal(err)
	}
	want := stored
	if want.IDToken, want.RefreshToken = "", ""; !equal(loaded, want) {
		f.t.Errorf("loaded %+v, stored is %+v", loaded, stored)
	}
	return stored
}

// gone fails the test unless the cookie opens nothing.
func (f *fixture) gone(cookie string) {
	f.t.Helper()
	if s, err := f.store.Load(f.ctx, cookie); !errors.Is(err, session.ErrNone) || !reflect.DeepEqual(s, session.Session{}) {
		f.t.Errorf("the cookie opens %+v, %v; want ErrNone", s, err)
	}
}

func (f *fixture) keys() []string {
	f.t.Helper()
	keys, err := f.client.Keys(f.ctx, "*").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	return keys
}

func (f *fixture) ttl(key string) time.Duration {
	f.t.Helper()
	ttl, err := f.client.PTTL(f.ctx, key).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	return ttl
}

func (f *fixture) expire(key string, after time.Duration) {
	f.t.Helper()
	if ok, err := f.client.PExpire(f.ctx, key, after).Result(); err != nil || !ok {
		f.t.Fatalf("%s: %v, %v", key, ok, err)
	}
}

func key(cookie string) string  { k, _ := session.Keys(cookie); return k }
func lock(cookie string) string { _, k := session.Keys(cookie); return k }

// equal compares sessions whose times are all in UTC.
func equal(a, b session.Session) bool { return reflect.DeepEqual(a, b) }

// watch is a redis.Hook. It records the commands that a client sends, and calls before, if
// set, with the commands of each round trip before they are sent.
type watch struct {
	before func(commands []redis.Cmder)
	mutex  sync.Mutex
	sent   [][]any
}

func (w *watch) see(commands []redis.Cmder) {
	w.mutex.Lock()
	for _, command := range commands {
		w.sent = append(w.sent, command.Args())
	}
	w.mutex.Unlock()
	if w.before != nil {
		w.before(commands)
	}
}

func (w *watch) commands() [][]any {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return append([][]any(nil), w.sent...)
}

func (w *watch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (w *watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		w.see([]redis.Cmder{command})
		return next(ctx, command)
	}
}

func (w *watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		w.see(commands)
		return next(ctx, commands)
	}
}

// onFirst returns a hook that calls do before the first round trip that begins
// with the named command.
func onFirst(name string, do func()) *watch {
	var once sync.Once
	return &watch{before: func(commands []redis.Cmder) {
		if commands[0].Name() == name {
			once.Do(do)
		}
	}}
}
