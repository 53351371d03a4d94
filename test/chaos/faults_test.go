//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	goredis "github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/event"
	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
)

// fault is something that goes wrong for a while.
type fault struct {
	name          string
	short, length time.Duration // how long it lasts, at least and at most
	// begin makes it happen and returns what ends it, which may be nil.
	begin func(r *rand.Rand) (end func() error, err error)
}

// lane is where one fault happens at a time. Lanes are independent of each other, so
// several faults happen at once.
type lane struct {
	name   string
	faults []fault
	// calm is how long nothing goes wrong there, at least and at most.
	calm, calmer time.Duration
}

// lanes returns those faults of a run of some length whose names match.
func (w *lone) lanes(length time.Duration, names *regexp.Regexp) (list []lane) {
	clocks := w.wrongClocks()
	for _, l := range []lane{
		{"processes", slices.Concat(w.processFaults(), w.processPointFaults(), w.processClockFaults(clocks)), 500 * time.Millisecond, 3 * time.Second},
		{"workers", append(w.mortalFaults("", 3*time.Second, 12*time.Second), w.workerClockFaults(clocks)...), 2 * time.Second, 5 * time.Second},
		{"workers that stay dying", w.mortalFaults(" for long", length/6, length/6), time.Second, 5 * time.Second},
		{"Postgres", w.postgresFaults(), time.Second, 5 * time.Second},
		{"Redis", w.redisFaults(), time.Second, 4 * time.Second},
		{"NATS", w.natsFaults(), time.Second, 4 * time.Second},
		{"connections", append(w.linkFaults(), w.linkPointFaults()...), 200 * time.Millisecond, 1500 * time.Millisecond},
	} {
		l.faults = slices.DeleteFunc(l.faults, func(f fault) bool { return !names.MatchString(f.name) })
		if len(l.faults) > 0 {
			list = append(list, l)
		}
	}
	return list
}

// processFaults happen to the processes that answer requests and hold all functions.
func (w *lone) processFaults() []fault {
	one := func(r *rand.Rand) *process { return w.gateways[r.IntN(len(w.gateways))] }
	return []fault{
		{"process killed", 0, time.Second, func(r *rand.Rand) (func() error, error) {
			p := one(r)
			return p.start, p.kill()
		}},
		{"process paused past its leases", pastLease, pastLease + time.Second, func(r *rand.Rand) (func() error, error) {
			p := one(r)
			return p.child.Resume, p.child.Pause()
		}},
		{"rolling restart", 0, 0, func(*rand.Rand) (func() error, error) {
			for _, p := range w.gateways {
				if err := p.child.Process.Signal(syscall.SIGTERM); err != nil {
					return nil, err
				}
				select {
				case <-p.child.Ended:
				case <-time.After(stopWithin):
					return nil, fmt.Errorf("%s runs %s after SIGTERM", p.name, stopWithin)
				}
				if err := p.child.Err(); err != nil {
					// Where a store is silent, a request that asks two functions may outlive SHUTDOWN_GRACE.
					said := p.lastLine()
					if !strings.Contains(said, "SHUTDOWN_GRACE") {
						return nil, fmt.Errorf("%s ends after SIGTERM with %w: %s", p.name, err, said)
					}
					say("%s cut off a request that outlived SHUTDOWN_GRACE", p.name)
				}
				if err := p.start(); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}},
		{"reconcile killed", 0, time.Second, func(*rand.Rand) (func() error, error) {
			return w.reconcile.start, w.reconcile.kill()
		}},
	}
}

// workers are the functions that die.
var workers = []string{"relay", "notify", "deliver", "settle", "ledger", "match", "announce", "watchdog", "cleanup"}

// mortalFaults are another process of a worker that begins to work, and dies each time.
func (w *lone) mortalFaults(how string, short, length time.Duration) (faults []fault) {
	for _, function := range workers {
		p := w.linked(strings.ReplaceAll("dying"+how+"-"+function, " ", "-"), function)
		faults = append(faults, fault{"a " + function + " that dies on each try" + how, short, length, func(r *rand.Rand) (func() error, error) {
			seed := r.Uint64()
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- p.dieAgain(ctx, rand.New(rand.NewPCG(seed, 0))) }()
			return func() error { stop(); return <-ended }, nil
		}})
	}
	return faults
}

// dieAgain starts the process, ticks it, and kills it in the middle, until ctx ends.
func (p *process) dieAgain(ctx context.Context, r *rand.Rand) error {
	for ctx.Err() == nil {
		if err := p.start(); err != nil {
			return err
		}
		go p.tick() // refused, if it does not listen yet
		for range 3 {
			pause(ctx, between(r, 20*time.Millisecond, 150*time.Millisecond))
			go p.tick()
		}
		if err := p.kill(); err != nil {
			return err
		}
	}
	return nil
}

func (w *lone) postgresFaults() []fault {
	const noLonger = 3 * time.Second
	exec := func(sql string, arguments ...any) error {
		ctx, cancel := context.WithTimeout(context.Background(), startWithin)
		defer cancel()
		_, err := w.admin.Exec(ctx, sql, arguments...)
		return err
	}
	// locked has another session hold what sql locks.
	locked := func(sql string) func(*rand.Rand) (func() error, error) {
		return func(*rand.Rand) (func() error, error) {
			ctx := context.Background()
			tx, err := w.admin.Begin(ctx)
			if err != nil {
				return nil, err
			}
			_, err = tx.Exec(ctx, "SET LOCAL lock_timeout = '10s'; "+sql)
			return func() error { return tx.Rollback(ctx) }, err
		}
	}
	faults := []fault{
		{"Postgres killed", 0, time.Second, func(*rand.Rand) (func() error, error) {
			return w.postgres.start, w.postgres.Kill()
		}},
		{"Postgres restarted", 0, time.Second, func(*rand.Rand) (func() error, error) {
			return w.postgres.start, w.postgres.Stop()
		}},
		{"all connections to Postgres ended", 0, 0, func(*rand.Rand) (func() error, error) {
			return nil, exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'miniserver\_%'`)
		}},
		{"Postgres read-only", 100 * time.Millisecond, noLonger, func(*rand.Rand) (func() error, error) {
			set := func(value string) error {
				return errors.Join(exec("ALTER SYSTEM SET default_transaction_read_only = "+value), exec("SELECT pg_reload_conf()"))
			}
			return func() error { return set("off") }, set("on")
		}},
		{"a session of Postgres frozen", lease, pastLease, func(r *rand.Rand) (func() error, error) { return w.freezeSession(r) }},
		{"entitlements locked", 100 * time.Millisecond, noLonger, locked(`LOCK TABLE entitlement.entitlements IN EXCLUSIVE MODE`)},
		{"accounts locked", 100 * time.Millisecond, noLonger, locked(`SELECT FROM core.account ORDER BY account_id FOR UPDATE`)},
		{"outbox rows locked", 100 * time.Millisecond, noLonger, locked(`SELECT FROM entitlement.outbox_events ORDER BY event_id DESC LIMIT 1000 FOR UPDATE`)},
		{"notifications locked", 100 * time.Millisecond, noLonger, locked(`LOCK TABLE notification.notifications IN SHARE ROW EXCLUSIVE MODE`)},
	}
	if w.postgres.disk != "" {
		faults = append(faults, fault{"Postgres' disk full", 500 * time.Millisecond, noLonger, func(*rand.Rand) (func() error, error) { return w.fillDisk() }})
	}
	return faults
}

// freezeSession stops a process of Postgres that works for us, in a transaction if there is
// such a one.
func (w *lone) freezeSession(r *rand.Rand) (end func() error, err error) {
	rows, err := w.admin.Query(context.Background(), `
		SELECT pid FROM pg_stat_activity WHERE usename LIKE 'miniserver\_%' AND backend_type = 'client backend'
		ORDER BY state LIKE 'idle in transaction%' DESC, state = 'active' DESC LIMIT 3`)
	if err != nil {
		return nil, err
	}
	var pids []int
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	if err := rows.Err(); err != nil || len(pids) == 0 {
		return nil, err
	}
	// It cannot end before this lane goes on, unless its client does; then this fails.
	session, err := os.FindProcess(pids[r.IntN(len(pids))])
	if err != nil {
		return nil, err
	}
	resume := func() error { _ = session.Signal(syscall.SIGCONT); return session.Release() }
	_ = session.Signal(syscall.SIGSTOP)
	return resume, nil
}

func (w *lone) redisFaults() []fault {
	const noLonger = 3 * time.Second
	ctx := context.Background()
	options, err := goredis.ParseURL(w.redis.URL())
	kit.Must(w.t, err)
	client := goredis.NewClient(options)
	w.t.Cleanup(func() { _ = client.Close() })
	return []fault{
		{"Redis killed", 0, time.Second, func(*rand.Rand) (func() error, error) {
			// While an fsync is under way, Redis answers before it writes: what it answered
			// then would be lost, as the documentation says. So none begins from here on.
			if err := client.ConfigSet(ctx, "appendfsync", "no").Err(); err != nil {
				return nil, err
			}
			for strings.Contains(client.Info(ctx, "persistence").Val(), "aof_pending_bio_fsync:1") {
				kit.Pause(time.Millisecond)
			}
			return w.redis.start, w.redis.Kill()
		}},
		{"Redis paused", 100 * time.Millisecond, noLonger, func(*rand.Rand) (func() error, error) {
			return w.redis.Resume, w.redis.Pause()
		}},
		{"Redis' store lost", 0, 0, func(*rand.Rand) (func() error, error) {
			over := w.forget()
			err := client.FlushAll(ctx).Err()
			over()
			return nil, errors.Join(err, w.forgive())
		}},
		{"Redis full", 100 * time.Millisecond, noLonger, func(*rand.Rand) (func() error, error) {
			return func() error { return client.ConfigSet(ctx, "maxmemory", "0").Err() }, client.ConfigSet(ctx, "maxmemory", "1").Err()
		}},
		{"all connections to Redis ended", 0, 0, func(*rand.Rand) (func() error, error) {
			return nil, client.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err()
		}},
		{"scripts forgotten by Redis", 0, 0, func(*rand.Rand) (func() error, error) {
			return nil, client.ScriptFlush(ctx).Err()
		}},
	}
}

func (w *lone) natsFaults() []fault {
	const noLonger = 3 * time.Second
	streams := []string{event.EntitlementSubject, event.MatchmakingSubject, event.TransferSubject, event.SettledSubject}
	// broker calls do with a client of the broker's.
	broker := func(do func(ctx context.Context, js jetstream.JetStream) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), startWithin)
		defer cancel()
		conn, err := nats.Connect(w.nats.URL())
		if err != nil {
			return err
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		err = do(ctx, js)
		var refused *jetstream.APIError
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound): // it is not made yet, or was deleted
			return nil
		case errors.As(err, &refused) && strings.Contains(refused.Description, "msg block file"):
			// Seen once in 12,000 faults, with nats-server 2.15.2: a stream whose folder is gone
			// acknowledges nothing until NATS is restarted.
			say("NATS broke the store of a stream, and is restarted: %v", err)
			began := time.Now()
			err = errors.Join(w.nats.End(), w.nats.start())
			w.note(happened{"NATS restarted, which broke a stream's store", began, time.Now()})
		}
		return err
	}
	// configure changes a stream, and returns what changes it back.
	configure := func(name string, change func(config *jetstream.StreamConfig, messages uint64)) (back func() error, err error) {
		back = func() error { return nil }
		return back, broker(func(ctx context.Context, js jetstream.JetStream) error {
			found, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			before := found.CachedInfo().Config
			changed := before
			change(&changed, found.CachedInfo().State.Msgs)
			back = func() error {
				return broker(func(ctx context.Context, js jetstream.JetStream) error {
					_, err := js.UpdateStream(ctx, before)
					return err
				})
			}
			_, err = js.UpdateStream(ctx, changed)
			return err
		})
	}
	return []fault{
		{"NATS killed", 0, time.Second, func(*rand.Rand) (func() error, error) { return w.nats.start, w.nats.End() }},
		{"NATS paused", 100 * time.Millisecond, noLonger, func(*rand.Rand) (func() error, error) { return w.nats.Resume, w.nats.Pause() }},
		{"NATS' store lost", 0, time.Second, func(*rand.Rand) (func() error, error) {
			return w.nats.start, errors.Join(w.nats.End(), os.RemoveAll(filepath.Join(w.nats.dir, "jetstream")))
		}},
		{"a stream deleted", 0, 0, func(r *rand.Rand) (func() error, error) {
			return nil, broker(func(ctx context.Context, js jetstream.JetStream) error {
				return js.DeleteStream(ctx, msjetstream.StreamName(streams[r.IntN(len(streams))]))
			})
		}},
		{"a stream's messages lost", 0, 0, func(r *rand.Rand) (func() error, error) {
			return nil, broker(func(ctx context.Context, js jetstream.JetStream) error {
				found, err := js.Stream(ctx, msjetstream.StreamName(streams[r.IntN(len(streams))]))
				if err != nil {
					return err
				}
				return found.Purge(ctx)
			})
		}},
		{"a stream full", 500 * time.Millisecond, noLonger, func(r *rand.Rand) (func() error, error) {
			return configure(msjetstream.StreamName(streams[r.IntN(len(streams))]), func(config *jetstream.StreamConfig, messages uint64) {
				config.MaxMsgs = int64(max(messages, 1))
			})
		}},
	}
}

// silentFor is how long a link carries nothing at most.
const silentFor = 15 * time.Second

// linkFaults happen between one process and one store.
func (w *lone) linkFaults() []fault {
	processes := append(slices.Clone(w.gateways), w.reconcile)
	stores := []string{"postgres", "redis", "nats"}
	with := func(do func(link *kit.Link, r *rand.Rand)) func(r *rand.Rand) (func() error, error) {
		return func(r *rand.Rand) (func() error, error) {
			link := processes[r.IntN(len(processes))].links[stores[r.IntN(len(stores))]]
			do(link, r)
			return func() error { link.Mend(); return nil }, nil
		}
	}
	return []fault{
		{"connections broken", 0, 0, with(func(l *kit.Link, _ *rand.Rand) { l.Cut() })},
		{"a store unreachable", 100 * time.Millisecond, 4 * time.Second, with(func(l *kit.Link, _ *rand.Rand) { l.Cut() })},
		{"a store silent", 100 * time.Millisecond, 4 * time.Second, with(func(l *kit.Link, _ *rand.Rand) { l.Hang() })},
		{"a store silent for long", 8 * time.Second, silentFor, with(func(l *kit.Link, _ *rand.Rand) { l.Hang() })},
		{"a store far away", 500 * time.Millisecond, 3 * time.Second, with(func(l *kit.Link, r *rand.Rand) { l.Slow(between(r, time.Millisecond, 100*time.Millisecond)) })},
		{"answers of a store lost", 500 * time.Millisecond, time.Second, with(func(l *kit.Link, r *rand.Rand) { l.Lose(1 + r.IntN(5)) })},
	}
}

// happened is a fault that is over.
type happened struct {
	name         string
	began, ended time.Time
}

// run lets faults happen in the lane until ctx ends, each as often as the others, and
// returns when the last one is over.
func (w *world) run(ctx context.Context, l lane, r *rand.Rand) error {
	for {
		for _, n := range r.Perm(len(l.faults)) {
			pause(ctx, between(r, l.calm, l.calmer))
			if ctx.Err() != nil {
				return nil
			}
			f := l.faults[n]
			lasts := between(r, f.short, f.length) // chosen now, so that what is missed changes no choice
			h := happened{name: f.name, began: time.Now()}
			end, err := f.begin(r)
			if err == nil {
				pause(ctx, lasts)
			}
			if end != nil {
				err = errors.Join(err, end())
			}
			if errors.Is(err, errMissed) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			h.ended = time.Now()
			w.note(h)
		}
	}
}
