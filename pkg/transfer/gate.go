package transfer

import (
	"context"
	"sync"
)

// hotLimit is how many transfers of one account a process runs at once. The row's
// lock lets one of them move money at a time; the others would only hold
// connections that transfers of other accounts need.
const hotLimit = 4

// gate lets a few at a time through for each account.
type gate struct {
	mutex sync.Mutex
	slots map[int64]*slot
}

type slot struct {
	free  chan struct{}
	users int
}

func newGate() *gate { return &gate{slots: map[int64]*slot{}} }

// enter waits for a place at both accounts, the lower id first, so that transfers do not
// wait for each other in a circle. leave must be called when the error is nil.
func (g *gate) enter(ctx context.Context, a, b int64) (leave func(), err error) {
	first, second := min(a, b), max(a, b)
	if err := g.take(ctx, first); err != nil {
		return nil, err
	}
	if err := g.take(ctx, second); err != nil {
		g.release(first)
		return nil, err
	}
	return func() {
		g.release(second)
		g.release(first)
	}, nil
}

func (g *gate) take(ctx context.Context, account int64) error {
	g.mutex.Lock()
	s := g.slots[account]
	if s == nil {
		s = &slot{free: make(chan struct{}, hotLimit)}
		g.slots[account] = s
	}
	s.users++
	g.mutex.Unlock()
	select {
	case s.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		g.forget(account, s)
		return ctx.Err()
	}
}

func (g *gate) release(account int64) {
	g.mutex.Lock()
	s := g.slots[account]
	g.mutex.Unlock()
	<-s.free
	g.forget(account, s)
}

func (g *gate) forget(account int64, s *slot) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if s.users--; s.users == 0 {
		delete(g.slots, account)
	}
}
