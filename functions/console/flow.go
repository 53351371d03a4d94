package console

import (
	"context"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// readTimeout bounds how long a page waits for a part that does not answer.
const readTimeout = 2 * time.Second

type flow struct {
	At          time.Time     `json:"at"`
	Tables      []tableState  `json:"tables" nullable:"false" doc:"Outboxes and notifications."`
	Streams     []streamState `json:"streams" nullable:"false" doc:"Of the broker."`
	Matchmaking []queueState  `json:"matchmaking" nullable:"false"`
	Transfers   transferState `json:"transfers"`
	Letters     []letterCount `json:"letters" nullable:"false" doc:"Messages that could not be read."`
	Away        []awayPart    `json:"away" nullable:"false" doc:"Parts that could not be read."`
}

type tableState struct {
	Queue string        `json:"queue" example:"entitlement-outbox"`
	Rows  []statusCount `json:"rows" nullable:"false" doc:"Those that are not done, by status."`
}

type statusCount struct {
	Status   string `json:"status" example:"PENDING"`
	Rows     int    `json:"rows" doc:"100,000 at most." example:"3"`
	OldestMS int64  `json:"oldest_ms" doc:"How long ago the oldest was created." example:"120"`
}

type streamState struct {
	Subject  string `json:"subject" example:"entitlement.events"`
	Consumer string `json:"consumer" example:"notify"`
	Messages int    `json:"messages" doc:"Not acknowledged yet." example:"0"`
}

type queueState struct {
	Mode         string `json:"mode" example:"casual"`
	Waiting      int    `json:"waiting" example:"2"`
	OldestMS     int64  `json:"oldest_ms" example:"1500"`
	RecentWaitMS int64  `json:"recent_wait_ms" doc:"How long recently matched players waited; 0 if there are none." example:"900"`
	Unannounced  int    `json:"unannounced" doc:"Matches whose events are not known to have arrived." example:"0"`
	Dead         int    `json:"dead" doc:"Matches that could not be announced at all." example:"0"`
}

type transferState struct {
	InProgress int   `json:"in_progress" example:"0"`
	OldestMS   int64 `json:"oldest_ms" example:"0"`
	LedgerDue  int   `json:"ledger_due" doc:"Transfers without ledger entries." example:"0"`
	DueMS      int64 `json:"ledger_due_ms" doc:"How long the oldest of them has waited." example:"0"`
}

type letterCount struct {
	Queue   string `json:"queue" example:"notification-letters"`
	Letters int    `json:"letters" doc:"100,000 at most." example:"0"`
}

type awayPart struct {
	Part   string `json:"part" example:"streams"`
	Reason string `json:"reason" example:"NATS cannot be reached at the moment."`
}

// parts reads things side by side, each with its own end: one that is away delays the
// others for readTimeout and spoils none.
type parts struct {
	ctx   context.Context
	group sync.WaitGroup
	mutex sync.Mutex
	away  []awayPart
	log   func(part string, err error)
}

// read runs get and then, under a lock, keep.
func read[T any](p *parts, name string, get func(context.Context) (T, error), keep func(T)) {
	p.group.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
		defer cancel()
		value, err := get(ctx)
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if err == nil {
			keep(value)
			return
		}
		p.away = append(p.away, awayPart{name, fault.Detail(err)})
		p.log(name, err)
	})
}

func (f *function) parts(ctx context.Context) *parts {
	return &parts{ctx: ctx, away: []awayPart{}, log: func(part string, err error) {
		f.env.Logger().WarnContext(ctx, "part not read", "part", part, "error", err.Error())
	}}
}

func (f *function) flow(ctx context.Context, _ *struct{}) (*struct{ Body flow }, error) {
	return &struct{ Body flow }{f.now(ctx)}, nil
}

// flowFor is how long a reading serves every operator: counting costs the more, the more
// is stuck.
const flowFor = time.Second

// now returns the last reading or makes a new one, for which later callers wait. A reading
// is fresh from its end on: one of a store that hangs takes longer than flowFor, and
// callers that waited for it must not begin another one each.
func (f *function) now(ctx context.Context) flow {
	f.looking.Lock()
	defer f.looking.Unlock()
	if time.Since(f.lookedAt) > flowFor {
		f.looked = f.readFlow(context.WithoutCancel(ctx))
		f.lookedAt = time.Now()
	}
	return f.looked
}

func (f *function) readFlow(ctx context.Context) flow {
	now := flow{
		At: time.Now().UTC(), Tables: make([]tableState, 0, len(f.queues)), Streams: make([]streamState, len(f.streams)), Matchmaking: []queueState{},
		Letters: make([]letterCount, 0, len(f.queues)), // appending moves no element that is being read into
	}
	p := f.parts(ctx)
	for _, q := range f.queues {
		switch {
		case q.hasRows():
			now.Tables = append(now.Tables, tableState{Queue: q.name, Rows: []statusCount{}})
			into := &now.Tables[len(now.Tables)-1]
			read(p, q.name, q.backlog, func(list []lease.Waiting) {
				for _, w := range list {
					into.Rows = append(into.Rows, statusCount{w.Status, w.Rows, w.Oldest.Milliseconds()})
				}
			})
		case q.hasLetters():
			now.Letters = append(now.Letters, letterCount{Queue: q.name})
			into := &now.Letters[len(now.Letters)-1]
			read(p, q.name, func(ctx context.Context) (int, error) { return q.box.Count(ctx, act.Filter{}) }, func(n int) { into.Letters = n })
		}
	}
	for i, s := range f.streams {
		into := &now.Streams[i]
		into.Subject, into.Consumer = s.subject, s.consumer
		read(p, s.subject, s.messages.Waiting, func(n int) { into.Messages = n })
	}
	read(p, "matchmaking", f.queueStates, func(list []queueState) { now.Matchmaking = list })
	read(p, "transfers", f.moving, func(m transferState) { now.Transfers = m })
	p.group.Wait()
	now.Away = p.away
	return now
}

func (f *function) queueStates(ctx context.Context) ([]queueState, error) {
	states, err := f.players.States(ctx)
	list := make([]queueState, len(states))
	for i, s := range states {
		list[i] = queueState{s.Mode, s.Waiting, s.Oldest.Milliseconds(), s.RecentWait.Milliseconds(), s.Unannounced, s.Dead}
	}
	return list, err
}

func (f *function) moving(ctx context.Context) (transferState, error) {
	open, oldest, err := f.transfers.InProgress(ctx)
	if err != nil {
		return transferState{}, err
	}
	due, dueFor, err := f.transfers.LedgerDue(ctx)
	return transferState{open, oldest.Milliseconds(), due, dueFor.Milliseconds()}, err
}
