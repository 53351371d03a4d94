package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

const (
	joinConns = 32 // more than are ever busy
	matchWait = 10 * time.Second
)

// waits are the times of players who joined.
type waits struct {
	took     []time.Duration // from joining to being matched
	least    []time.Duration // if each were matched as soon as the next one joins
	answered []time.Duration // from sending the request to its answer
	refused  int
}

func (w *waits) add(other waits) {
	w.took, w.least = append(w.took, other.took...), append(w.least, other.least...)
	w.answered, w.refused = append(w.answered, other.answered...), w.refused+other.refused
}

// arrivals lets n players join, so many a second, and returns how long they waited.
func arrivals(ctx context.Context, address string, q *queues, players []player, n, perSecond int) (waits, error) {
	var w waits
	tickets := make([]string, n)
	answered := make([]time.Duration, n)
	failures := make([]error, joinConns)
	next := make(chan int, n) // players who join do not wait for those before them
	var group sync.WaitGroup
	for i := range joinConns {
		c, err := dial(ctx, address, "")
		if err != nil {
			return w, err
		}
		defer c.close()
		group.Go(func() {
			for n := range next {
				began := time.Now()
				ticketID, err := c.joinQueue(address, casual, players[n%len(players)])
				if err != nil {
					failures[i] = err
				}
				tickets[n], answered[n] = ticketID, time.Since(began)
			}
		})
	}
	at := time.Now()
	for i := range n {
		at = at.Add(time.Duration(rand.ExpFloat64() * float64(time.Second) / float64(perSecond)))
		time.Sleep(time.Until(at))
		next <- i
	}
	close(next)
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, matchWait)
	defer cancel()
	var joined []time.Time
	for n, ticketID := range tickets {
		if ticketID == "" {
			w.refused++
			continue
		}
		w.answered = append(w.answered, answered[n])
		ticket, err := q.matched(ctx, players[n%len(players)].userID, ticketID)
		if err != nil {
			return w, err
		}
		if ticket.Made == nil {
			continue
		}
		joined = append(joined, ticket.CreatedAt)
		w.took = append(w.took, ticket.MatchedAt.Sub(ticket.CreatedAt))
	}
	slices.SortFunc(joined, time.Time.Compare)
	for i := 0; i+1 < len(joined); i += 2 {
		w.least = append(w.least, joined[i+1].Sub(joined[i]), 0)
	}
	return w, nil
}

// matched waits until a ticket is matched. Of an odd number one is left alone, and is
// taken out of the queue: the next player must not meet it.
func (q *queues) matched(ctx context.Context, userID, ticketID string) (matchmaking.Ticket, error) {
	for {
		ticket, err := q.Get(ctx, userID, ticketID)
		if err == nil && ticket.Status == matchmaking.Queued && ticket.Reason.Code == "alone" {
			ticket, _, err = q.Cancel(ctx, userID, ticketID)
			return ticket, err
		}
		if err != nil || ticket.Status == matchmaking.Matched {
			return ticket, err
		}
		if ticket.Status != matchmaking.Queued {
			return ticket, fmt.Errorf("ticket %s is %s", ticketID, ticket.Status)
		}
		select {
		case <-ctx.Done():
			return ticket, fmt.Errorf("ticket %s waits: %w", ticketID, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}
