package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// costs measures what one of each work takes of the functions, Postgres, Redis and the log
// that Postgres writes, everything that follows from it included: the numbers from which
// docs/capacity.md computes. Of JetStream it says nothing, whose server shares a process
// with the load generator here.
func (b *bench) costs(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	k, err := b.bank(ctx, "costs", issuer)
	if err != nil {
		return err
	}
	q, err := b.queuesAt(k.redis.URL())
	if err != nil {
		return err
	}
	keys, err := k.issue(ctx, int(b.sizes.window.Seconds()+1)*10_000, playerCount)
	if err != nil {
		return err
	}
	token, err := issuer.shop()
	if err != nil {
		return err
	}
	full := func(open func(context.Context) (func() error, func(), error)) func(context.Context, time.Duration) (int, error) {
		return func(ctx context.Context, window time.Duration) (int, error) {
			_, took, err := clocked(ctx, frontClients, window, open)
			return len(took), err
		}
	}
	for _, work := range []struct {
		name string
		do   func(context.Context, time.Duration) (n int, err error)
	}{
		{"GET /v1/me, by token", full(asker(k.address, me(k.system, k.players, byBearer)))},
		{"GET /v1/me, by cookie", full(asker(k.address, me(k.system, k.players, byCookie)))},
		{"grant, until its notification is sent", full(granter(k.address, token))},
		{"transfer, until both notifications are sent", full(k.payer(keys, (*customer).send, among(moneyAccounts)))},
		{fmt.Sprintf("join at %d/s, until the match's notifications are sent", joinsPerSecond), func(ctx context.Context, window time.Duration) (int, error) {
			w, err := arrivals(ctx, k.address, q, k.players, int(window.Seconds()*joinsPerSecond), joinsPerSecond)
			return len(w.took), err
		}},
	} {
		if _, err := work.do(ctx, b.sizes.window/4); err != nil { // to warm up
			return fmt.Errorf("%s: %w", work.name, err)
		}
		if err := k.quiet(ctx); err != nil {
			return err
		}
		before, err := b.spent(ctx, k.system, q)
		if err != nil {
			return err
		}
		n, err := work.do(ctx, b.sizes.window)
		if err != nil {
			return fmt.Errorf("%s: %w", work.name, err)
		}
		if err := k.quiet(ctx); err != nil {
			return err
		}
		after, err := b.spent(ctx, k.system, q)
		if err != nil {
			return err
		}
		each := func(before, after time.Duration) int64 { return (after - before).Microseconds() / int64(n) }
		b.row("one "+work.name, fmt.Sprintf("functions %d µs, Postgres %d µs, Redis %d µs, log %d B, disk %d B", each(before.functions, after.functions),
			each(before.postgres, after.postgres), each(before.redis, after.redis), (after.log-before.log)/int64(n), (after.disk-before.disk)/int64(n)), "–", "–", "–")
	}
	return nil
}

// quiet waits until nothing is left to do, and a little longer.
func (k *bank) quiet(ctx context.Context) error {
	const all = `SELECT (SELECT count(*) FROM entitlement.outbox_events WHERE finished_at IS NULL)
		+ (SELECT count(*) FROM integration.outbox_events WHERE finished_at IS NULL)
		+ (SELECT count(*) FROM notification.notifications WHERE finished_at IS NULL)`
	for quiet := 0; quiet < 5; {
		var left int
		if err := k.pool.QueryRow(ctx, all).Scan(&left); err != nil {
			return err
		}
		quiet++
		if left > 0 {
			quiet = 0
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}

// spent is what a system and its stores have used since they began.
type spent struct {
	functions, postgres, redis time.Duration
	log, disk                  int64 // bytes
}

func (b *bench) spent(ctx context.Context, s *system, q *queues) (now spent, err error) {
	var postgres, redis error
	now.functions, err = cpuOf(s.process.Pid)
	now.postgres, postgres = cpuOfServer(filepath.Join(b.dir, "postgres"))
	now.redis, redis = q.cpu(ctx)
	return now, errors.Join(err, postgres, redis,
		s.pool.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_database_size(current_database())`).Scan(&now.log, &now.disk))
}

// cpuOfServer is how much CPU the processes of the Postgres in dir have used.
func cpuOfServer(dir string) (time.Duration, error) {
	file, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(file), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0, err
	}
	return cpuOfChildren(pid)
}
