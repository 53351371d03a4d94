package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// drained counts the outcomes of grants once everything has come to rest: rows in each
// state, and notifications that were sent twice.
func (b *bench) drained(ctx context.Context) error {
	s, err := b.system(ctx, "drained", "LOG_LEVEL=info") // its log has what was sent
	if err != nil {
		return err
	}
	n := int64(b.sizes.granted)
	var given atomic.Int64
	if _, err := load(ctx, 32, maxRun, func(ctx context.Context) (func() error, func(), error) {
		c, err := dial(ctx, s.address, b.token)
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			if given.Add(1) > n {
				return errEnough
			}
			return c.grant(randomUser(), randomKey())
		}, c.close, nil
	}); err != nil {
		return err
	}
	if err := s.drained(ctx); err != nil {
		return err
	}
	for _, table := range []string{"entitlement.outbox_events", "notification.notifications"} {
		states, err := s.states(ctx, table)
		if err != nil {
			return err
		}
		b.note("After %d grants over HTTP, %s has %s.", n, table, states)
	}
	var twice int
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM notification.notifications GROUP BY event_id, user_id HAVING count(*) > 1) d`).Scan(&twice); err != nil {
		return err
	}
	sent, again, err := sentLines(s.log)
	if err != nil {
		return err
	}
	duplicates := twice + again
	b.row(fmt.Sprintf("duplicates after %d grants over HTTP", n), fmt.Sprintf("%d rows, %d sendings", twice, again),
		fmt.Sprintf("sent: %d", sent), judged(float64(duplicates), duplicates == 0 && sent == int(n)), "0")
	return nil
}

// states lists how many rows of a table are in each state.
func (s *system) states(ctx context.Context, table string) (string, error) {
	rows, err := s.pool.Query(ctx, `SELECT count(*) || ' ' || status || CASE WHEN attempt_count > 1 THEN ' after several attempts' ELSE '' END
		FROM `+table+` GROUP BY status, attempt_count > 1 ORDER BY 1`)
	if err != nil {
		return "", err
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(list, ", "), err
}

// sentLines counts the notifications that the log channel sent, and how many of them were
// sent again.
func sentLines(path string) (sent, again int, err error) {
	log, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	seen := map[string]bool{}
	for line := range bytes.Lines(log) {
		var entry struct {
			Message string `json:"msg"`
			ID      string `json:"notification_id"`
		}
		if json.Unmarshal(line, &entry) != nil || entry.Message != "notification" {
			continue
		}
		if seen[entry.ID] {
			again++
		}
		seen[entry.ID] = true
	}
	return len(seen), again, nil
}
