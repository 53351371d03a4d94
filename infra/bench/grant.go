package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// grant measures grants over HTTP, through the gateway, beside the same writes by
// pgbench: with everything up to the sent notification, and with wakes and schedule off,
// so that both do the same. Every arm has a database of its own, so that none drains
// another's events.
func (b *bench) grant(ctx context.Context) error {
	told, err := b.system(ctx, "told")
	if err != nil {
		return err
	}
	alone, err := b.system(ctx, "alone", "WAKES=false", "SCHEDULE=off")
	if err != nil {
		return err
	}
	peer, limitName, err := b.fourWrites(ctx)
	if err != nil {
		return err
	}
	replays, err := b.replays(ctx, told)
	if err != nil {
		return err
	}
	window, late := time.Second, 0
	grants := func(s *system, clients int) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			rate, err := b.grants(ctx, s.address, clients, window)
			if err != nil || s != told {
				return rate, err
			}
			left, err := s.left(ctx)
			late = max(late, left)
			return rate, errors.Join(err, s.drained(ctx))
		}
	}
	arms := []arm{
		{"pgbench", peer},
		{"alone, 32 clients", grants(alone, 32)},
		{"alone, 64 clients", grants(alone, 64)},
		{"told, 32 clients", grants(told, 32)},
		{"told, 64 clients", grants(told, 64)},
		{"replays, 32 clients", replays},
	}
	for _, a := range arms[:4] { // to warm up
		if _, err := a.run(ctx); err != nil {
			return err
		}
	}
	window, late = b.sizes.window, 0
	m, err := b.rounds(ctx, arms...)
	if err != nil {
		return err
	}
	b.atLeast("grant over HTTP, 32 clients, nothing downstream", m[1], limitName, m[0], 1)
	b.atLeast("grant over HTTP, 64 clients, nothing downstream", m[2], limitName, m[0], 1.5)
	b.row("grant over HTTP, 32 clients, while all of them are told", perSecond(m[3]), limitName+": "+perSecond(m[0]), judged(m[3]/m[0], true), "–")
	b.row("grant over HTTP, 64 clients, while all of them are told", perSecond(m[4]), limitName+": "+perSecond(m[0]), judged(m[4]/m[0], true), "–")
	b.note("When the load of a measurement ended, at most %d of about %.0f grants were not told yet.", late, m[3]*b.sizes.window.Seconds())
	b.atLeast("replay, 32 clients", m[5], "new grants, nothing downstream", m[1], 2.5)
	b.atLeast("replay, 32 clients", m[5], "new grants while all of them are told", m[3], 2.5)
	return nil
}

// replays returns an arm that repeats requests that were answered before.
func (b *bench) replays(ctx context.Context, s *system) (func(context.Context) (float64, error), error) {
	const known = 2_000
	first, err := dial(ctx, s.address, b.token)
	if err != nil {
		return nil, err
	}
	defer first.close()
	var requests [known][2]string
	for i := range requests {
		requests[i] = [2]string{randomUser(), randomKey()}
		if err := first.grant(requests[i][0], requests[i][1]); err != nil {
			return nil, err
		}
	}
	var next atomic.Uint32
	return func(ctx context.Context) (float64, error) {
		return load(ctx, 32, b.sizes.window, func(ctx context.Context) (func() error, func(), error) {
			c, err := dial(ctx, s.address, b.token)
			if err != nil {
				return nil, nil, err
			}
			return func() error {
				request := requests[next.Add(1)%known]
				return c.grant(request[0], request[1])
			}, c.close, nil
		})
	}, s.drained(ctx)
}
