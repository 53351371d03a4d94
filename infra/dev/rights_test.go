package dev

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/rights"
)

// A user of Redis reaches the keys that it has a right to and no others, and nothing
// that concerns all keys or the server.
func TestRedisUserReachesItsKeysOnly(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	users := map[string]rights.Rights{"queues": {Keys: []string{"mm:*"}, Reads: []string{"session:*"}}}
	r, err := StartRedis(testContext(t), RedisOptions{Dir: dir, Binaries: binaries(t), Users: users})
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		options, err := redis.ParseURL(r.URLAs("queues"))
		if err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(options)
		defer c.Close()
		ctx := testContext(t)
		script := redis.NewScript(`return redis.call('SET', KEYS[1], 1)`)
		for _, may := range []error{
			c.Ping(ctx).Err(), c.Set(ctx, "mm:a", 1, time.Minute).Err(), c.ZAdd(ctx, "mm:z", redis.Z{}).Err(), c.Time(ctx).Err(),
			script.Run(ctx, c, []string{"mm:b"}).Err(), c.Exists(ctx, "session:a").Err(), c.XAdd(ctx, &redis.XAddArgs{Stream: "mm:s", Values: []string{"a", "b"}}).Err(),
		} {
			if may != nil {
				t.Errorf("it may not do what it has a right to: %v", may)
			}
		}
		for what, err := range map[string]error{
			"another's key": c.Get(ctx, "rate:a").Err(), "writing what it reads": c.Set(ctx, "session:a", 1, 0).Err(),
			"another's key in a script": script.Run(ctx, c, []string{"rate:a"}).Err(),
			"another's key, undeclared": c.Eval(ctx, `return redis.call('SET', 'rate:a', 1)`, nil).Err(),
			"FLUSHALL":                  c.FlushAll(ctx).Err(), "FLUSHDB": c.FlushDB(ctx).Err(), "KEYS": c.Keys(ctx, "*").Err(), "SCAN": c.Scan(ctx, 0, "*", 1).Err(),
			"CONFIG": c.ConfigGet(ctx, "*").Err(), "ACL": c.Do(ctx, "ACL", "LIST").Err(), "SHUTDOWN": c.Do(ctx, "SHUTDOWN", "NOSAVE").Err(),
			"SCRIPT FLUSH": c.ScriptFlush(ctx).Err(), "CLIENT KILL": c.ClientKill(ctx, "127.0.0.1:1").Err(), "MONITOR": c.Do(ctx, "MONITOR").Err(),
			"PUBLISH": c.Publish(ctx, "x", "y").Err(), "FUNCTION": c.Do(ctx, "FUNCTION", "FLUSH").Err(), "RESTORE": c.Do(ctx, "RESTORE", "mm:r", 0, "x").Err(),
		} {
			if err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "permission") && !strings.Contains(err.Error(), "can't access") {
				t.Errorf("%s: %v, want that it has no permission", what, err)
			}
		}
	}
	check()
	stop(t, r)
	r = startRedis(t, dir) // its users stay
	check()
}

// A user of NATS publishes and subscribes where it has a right to, and nowhere else.
func TestNATSUserReachesItsSubjectsOnly(t *testing.T) {
	t.Parallel()
	n, err := StartNATS(testContext(t), NATSOptions{Dir: serverDir(t), Users: map[string]rights.Rights{"stream": {Listens: []string{"live.*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop() })
	refused := make(chan error, 10)
	conn, err := nats.Connect(n.URLAs("stream"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, subject := range []string{"entitlement.events", "live.u_1", "$JS.API.STREAM.DELETE.ENTITLEMENT_EVENTS", "$JS.API.STREAM.PURGE.ENTITLEMENT_EVENTS"} {
		if err := conn.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, refused, subject)
	}
	for _, subject := range []string{">", "entitlement.events", "_INBOX.>", "_INBOX_notify.>"} {
		if _, err := conn.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, refused, subject)
	}
	listened, err := conn.SubscribeSync("live.u_1")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	owner, err := nats.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if err := owner.Publish("live.u_1", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := listened.NextMsg(10 * time.Second); err != nil {
		t.Errorf("it does not hear what it has a right to: %v", err)
	}
}

func wantRefused(t *testing.T, refused <-chan error, subject string) {
	t.Helper()
	select {
	case err := <-refused:
		if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") || !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: %v, want a permissions violation", subject, err)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("%s: the server lets it be", subject)
	}
}
