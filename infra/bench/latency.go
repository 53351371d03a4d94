package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const pacedPerSecond = 50

// latency measures the time from sending a grant to its notification's sent_at, at a
// steady 50 a second, with wakes beside a schedule of one second alone. Both times are of
// this machine's one clock; sent_at is when the statement began that marks the
// notification SENT, after it was sent.
func (b *bench) latency(ctx context.Context) error {
	waking, err := b.system(ctx, "wakes")
	if err != nil {
		return err
	}
	polling, err := b.system(ctx, "polls", "WAKES=false")
	if err != nil {
		return err
	}
	took := map[*system][]time.Duration{}
	if _, err := b.paced(ctx, waking, pacedPerSecond); err != nil { // to warm up
		return err
	}
	for range b.sizes.rounds {
		for _, s := range []*system{waking, polling} {
			some, err := b.paced(ctx, s, int(b.sizes.paced.Seconds()*pacedPerSecond))
			if err != nil {
				return err
			}
			took[s] = append(took[s], some...)
		}
	}
	w50, w99 := percentile(took[waking], 0.5), percentile(took[waking], 0.99)
	p50, p99 := percentile(took[polling], 0.5), percentile(took[polling], 0.99)
	const work = "grant → SENT at 50/s, with wakes"
	b.row(work+", p50", ms(w50), "–", "–", bounded(w50, 10*time.Millisecond))
	b.row(work+", p99", ms(w99), "–", "–", bounded(w99, 50*time.Millisecond))
	ratio := float64(w50) / float64(p50)
	share := fmt.Sprintf("%.2f %%", 100*ratio)
	if ratio > 0.02 {
		share = "**" + share + "**"
	}
	b.row(work+", p50", ms(w50), fmt.Sprintf("without wakes, ticked every second: %s, p99 %s", ms(p50), ms(p99)), share, "≤ 2 %")
	return nil
}

func bounded(value, target time.Duration) string {
	text := "≤ " + target.String()
	if value > target {
		return "**" + text + "**"
	}
	return text
}

// paced sends total grants at a steady rate and returns how long each notification took.
func (b *bench) paced(ctx context.Context, s *system, total int) ([]time.Duration, error) {
	run := uuid.NewString()
	sentAt := make([]time.Time, total)
	if err := b.steadily(ctx, s, b.token, total, func(c *client, n int) error {
		sentAt[n] = time.Now()
		return c.grant(fmt.Sprintf("%s/%d", run, n), randomKey())
	}); err != nil {
		return nil, err
	}
	if err := s.drained(ctx); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, `SELECT split_part(user_id, '/', 2)::int, sent_at FROM notification.notifications WHERE user_id LIKE $1 AND status = 'SENT'`, run+"/%")
	if err != nil {
		return nil, err
	}
	took, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (time.Duration, error) {
		var n int
		var at time.Time
		err := row.Scan(&n, &at)
		return at.Sub(sentAt[n].Round(0)), err // the wall clock's, as the database's
	})
	if err == nil && len(took) != total {
		err = fmt.Errorf("%d of %d were told", len(took), total)
	}
	b.progress("  %s: p50 %s, p99 %s", s.log, ms(percentile(took, 0.5)), ms(percentile(took, 0.99)))
	return took, err
}

// steadily calls do with 0 up to total, pacedPerSecond times a second, each time with a
// free connection.
func (b *bench) steadily(ctx context.Context, s *system, token string, total int, do func(c *client, n int) error) error {
	const clients = 16 // more than are ever busy
	next := make(chan int)
	failures := make([]error, clients)
	var group sync.WaitGroup
	for i := range clients {
		c, err := dial(ctx, s.address, token)
		if err != nil {
			return err
		}
		defer c.close()
		group.Go(func() {
			for n := range next {
				if err := do(c, n); err != nil {
					failures[i] = err
				}
			}
		})
	}
	ticker := time.NewTicker(time.Second / pacedPerSecond)
	defer ticker.Stop()
	for n := range total {
		<-ticker.C
		next <- n
	}
	close(next)
	group.Wait()
	return errors.Join(failures...)
}
