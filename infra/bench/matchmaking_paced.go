package main

import (
	"context"
	"fmt"
	"time"
)

const joinsPerSecond = 200

// timeToMatch measures how long players wait in the whole system when 200 a second join a
// plain queue over HTTP, at random: the gaps between them are exponential, as those of
// people are. Both ends are times of Redis, in whole ms. The column beside it is how long
// players would wait if each were matched at the very moment when the next one joins.
func (b *bench) timeToMatch(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	s, players, err := b.door(ctx, "matches", issuer, playerCount)
	if err != nil {
		return err
	}
	if err := (&probe{address: s.address, pid: s.process.Pid, asks: me(s, players, byBearer)}).warm(ctx, b.sizes.front/3); err != nil {
		return err
	}
	q, err := b.queuesAt(s.redis.URL())
	if err != nil {
		return err
	}
	if _, err := arrivals(ctx, s.address, q, players, joinsPerSecond, joinsPerSecond); err != nil { // to warm up
		return err
	}
	var all waits
	for range b.sizes.rounds {
		w, err := arrivals(ctx, s.address, q, players, int(b.sizes.paced.Seconds()*joinsPerSecond), joinsPerSecond)
		if err != nil {
			return err
		}
		b.progress("  joined → MATCHED: p50 %s, p95 %s", ms(percentile(w.took, 0.5)), ms(percentile(w.took, 0.95)))
		all.add(w)
	}
	for _, p := range []struct {
		name   string
		of     float64
		target time.Duration
	}{{"p50", 0.5, 15 * time.Millisecond}, {"p95", 0.95, 40 * time.Millisecond}, {"p99", 0.99, 0}} {
		value, target := percentile(all.took, p.of), "–"
		if p.target > 0 {
			target = bounded(value, p.target)
		}
		b.row(fmt.Sprintf("joined → MATCHED, casual, %d/s over HTTP, %s", joinsPerSecond, p.name), ms(value),
			"until the next one joined: "+ms(percentile(all.least, p.of)), "–", target)
	}
	b.note("Joining over HTTP took p50 %s, p99 %s; %d of %d joins were refused, as their player's last ticket waited still.",
		ms(percentile(all.answered, 0.5)), ms(percentile(all.answered, 0.99)), all.refused, all.refused+len(all.answered))
	return nil
}
