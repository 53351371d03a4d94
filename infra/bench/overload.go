package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	offeredTimes   = 3    // what the system can do
	offeredClients = 1024 // each waits for its answer before it sends the next request
	soonEnough     = 100 * time.Millisecond
	backAfter      = time.Second
)

// overload offers more grants than the system can do, and looks at what becomes of them.
func (b *bench) overload(ctx context.Context) error {
	s, err := b.system(ctx, "overload", "WAKES=false", "SCHEDULE=off")
	if err != nil {
		return err
	}
	if _, err := b.grants(ctx, s.address, 64, time.Second); err != nil { // to warm up
		return err
	}
	var answered, quick []float64
	var all offered
	for range b.sizes.rounds {
		best, err := b.grants(ctx, s.address, 64, b.sizes.window)
		if err != nil {
			return err
		}
		o, err := b.offer(ctx, s.address, offeredTimes*best)
		if err != nil {
			return err
		}
		rate := float64(len(o.done)) / o.took.Seconds()
		b.progress("  best %.0f/s; offered %.0f/s: answered %.0f/s, refused %.0f/s, within %s (p99); back after %s", best,
			float64(o.sent)/o.took.Seconds(), rate, float64(len(o.refused))/o.took.Seconds(), ms(percentile(o.turned, 0.99)), ms(o.back[0]))
		answered, quick = append(answered, rate), append(quick, best)
		all.add(o)
	}
	work := fmt.Sprintf("grants answered while %d clients offer %d times what it can do", offeredClients, offeredTimes)
	b.atLeast(work, median(answered), "best rate, 64 clients", median(quick), 0.8)
	turned := percentile(all.turned, 0.99)
	b.row(work+": a refusal takes, p99", ms(turned), "–", "–", bounded(turned, soonEnough))
	b.row(work+": until a grant takes less than 50 ms again", ms(percentile(all.back, 1)), "–", "–", bounded(percentile(all.back, 1), backAfter))
	return s.did(ctx, all.done, all.refused)
}

// offered is what became of the requests that clients sent.
type offered struct {
	sent          int
	done, refused []string // keys
	turned        []time.Duration
	took          time.Duration
	back          []time.Duration // after the load ended
}

func (o *offered) add(other offered) {
	o.sent += other.sent
	o.done, o.refused = append(o.done, other.done...), append(o.refused, other.refused...)
	o.turned, o.back = append(o.turned, other.turned...), append(o.back, other.back...)
}

// offer lets many clients send so many grants a second, if they are answered soon enough.
func (b *bench) offer(ctx context.Context, address string, perSecond float64) (offered, error) {
	each := make([]offered, offeredClients)
	failures := make([]error, offeredClients)
	clients := make([]*client, offeredClients)
	for i := range clients {
		c, err := dial(ctx, address, b.token)
		if err != nil {
			return offered{}, err
		}
		defer c.close()
		clients[i] = c
	}
	every := time.Duration(offeredClients / perSecond * float64(time.Second))
	began := time.Now()
	end := began.Add(b.sizes.window)
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() {
			next := began.Add(rand.N(every))
			for next.Before(end) && ctx.Err() == nil {
				time.Sleep(time.Until(next))
				if failures[i] = each[i].send(c); failures[i] != nil {
					return
				}
				next = next.Add(every)
				if now := time.Now(); next.Before(now) {
					next = now
				}
			}
		})
	}
	group.Wait()
	all := offered{took: time.Since(began)}
	for _, o := range each {
		all.add(o)
	}
	over, err := time.Now(), errors.Join(failures...)
	for err == nil {
		sent := time.Now()
		var once offered
		err = errors.Join(once.send(clients[0]), ctx.Err())
		all.add(once)
		if len(once.done) == 1 && time.Since(sent) < soonEnough/2 {
			all.back = []time.Duration{time.Since(over)}
			break
		}
	}
	return all, err
}

// send sends one grant, which may be refused.
func (o *offered) send(c *client) error {
	key, began := randomKey(), time.Now()
	o.sent++
	err := c.grant(randomUser(), key)
	var other *unexpected
	switch {
	case err == nil:
		o.done = append(o.done, key)
	case errors.As(err, &other) && other.status == "503":
		o.refused, o.turned, err = append(o.refused, key), append(o.turned, time.Since(began)), nil
	}
	return err
}

// did fails unless all of the grants were made that were answered, and none that was
// refused.
func (s *system) did(ctx context.Context, done, refused []string) error {
	count := func(keys []string) (n int, err error) {
		err = s.pool.QueryRow(ctx, `SELECT count(*) FROM entitlement.idempotency_keys WHERE idem_key = ANY($1)`, keys).Scan(&n)
		return n, err
	}
	made, err := count(done)
	if err == nil && made != len(done) {
		err = fmt.Errorf("%d of %d answered grants are there", made, len(done))
	}
	made, failed := count(refused)
	if failed == nil && made != 0 {
		failed = fmt.Errorf("%d of %d refused grants were made", made, len(refused))
	}
	return errors.Join(err, failed)
}
