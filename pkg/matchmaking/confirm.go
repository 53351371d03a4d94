package matchmaking

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/outbox"
)

const (
	// confirmBatch is how many entries a step reads.
	confirmBatch = 20
	// confirmAfter is the age at which an entry's events are first expected to have
	// arrived.
	confirmAfter = 10 * time.Second
)

// Confirmer removes matches from the streams once notification has their events, and
// requeues matches whose events the broker lost. It also deletes the consumers of
// announcers that ended. It is not safe for concurrent use; several processes may
// confirm at once.
type Confirmer struct {
	store    *Store
	consumer outbox.Consumer
	after    time.Duration
	idle     time.Duration // after which an announcer counts as ended
	log      *slog.Logger
	from     map[string]string // by mode, where the walk continues
}

// NewConfirmer returns a confirmer. A match is announced again when its event is older
// than after and has not arrived; after must exceed the time of delivery.
func NewConfirmer(store *Store, consumer outbox.Consumer, after time.Duration, log *slog.Logger) *Confirmer {
	return &Confirmer{store: store, consumer: consumer, after: after, idle: consumerIdle, log: log, from: map[string]string{}}
}

// Step checks the next entries of each mode. In its report, Claimed counts the checked
// matches, Done those whose events have arrived, and Retried those that are announced
// again.
func (c *Confirmer) Step(ctx context.Context) (lease.Report, error) {
	var total lease.Report
	var failures []error
	for _, mode := range c.store.Modes() {
		report, err := c.step(ctx, mode)
		total.Merge(report)
		failures = append(failures, err)
	}
	return total, errors.Join(failures...)
}

func (c *Confirmer) step(ctx context.Context, mode string) (report lease.Report, err error) {
	from := c.from[mode]
	if from == "" {
		from = "-"
	}
	c.from[mode] = "" // after an error, start from the beginning
	now, err := c.store.client.Time(ctx).Result()
	if err != nil {
		return report, unreachable(err)
	}
	until := strconv.FormatInt(now.Add(-min(confirmAfter, c.after)).UnixMilli(), 10)
	messages, err := c.store.client.XRangeN(ctx, eventsKey(mode), from, until, confirmBatch).Result()
	if err != nil {
		return report, unreachable(err)
	}
	if len(messages) < confirmBatch { // the end of the walk
		defer c.deleteConsumers(ctx, mode)
	}
	if len(messages) == 0 {
		return report, nil
	}
	entries := make([]entry, len(messages))
	var ids []uuid.UUID
	for i, m := range messages {
		entries[i] = entryOf(mode, m)
		for _, a := range entries[i].matches {
			if id, err := uuid.Parse(a.EventID); err == nil {
				ids = append(ids, id)
			}
		}
	}
	missing, err := c.missing(ctx, ids)
	if err != nil {
		return report, err
	}
	for _, e := range entries {
		if err := c.settle(ctx, mode, e, now, missing, &report); err != nil {
			return report, err
		}
	}
	if report.More = len(messages) == confirmBatch; report.More {
		c.from[mode] = "(" + messages[len(messages)-1].ID
	}
	return report, nil
}

// deleteConsumers only tidies up: a failure is retried after the next walk.
func (c *Confirmer) deleteConsumers(ctx context.Context, mode string) {
	deleted, err := c.store.deleteConsumers(ctx, mode, c.idle)
	switch {
	case err != nil:
		c.log.WarnContext(ctx, "consumers of announcers that ended are not deleted", "mode", mode, "error", err.Error())
	case deleted > 0:
		c.log.InfoContext(ctx, "deleted the consumers of announcers that ended", "mode", mode, "count", deleted)
	}
}

func (c *Confirmer) missing(ctx context.Context, ids []uuid.UUID) (map[string]bool, error) {
	list, err := c.consumer.Missing(ctx, ids)
	missing := make(map[string]bool, len(list))
	for _, id := range list {
		missing[id.String()] = true
	}
	return missing, err
}

// settle removes an entry whose events have all arrived, and requeues the matches
// whose events are overdue.
func (c *Confirmer) settle(ctx context.Context, mode string, e entry, now time.Time, missing map[string]bool, report *lease.Report) error {
	again := map[string]string{}
	for _, a := range e.matches {
		report.Claimed++
		if missing[a.EventID] || a.err != nil {
			again[a.ID] = a.again()
		} else {
			report.Done++
		}
	}
	if len(again) > 0 {
		if e.age(now) < c.after {
			return nil
		}
		if caught, err := c.consumer.Caught(ctx, c.after); err != nil || !caught {
			return err // the event may still be on its way
		}
		c.log.WarnContext(ctx, "matches were lost after they were announced; announcing them again", "entry", e.id, "count", len(again))
		report.Retried += len(again)
	}
	if err := c.store.requeue(ctx, mode, e.id, again); err != nil {
		return unreachable(err)
	}
	return nil
}
