package console

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/cursor"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// Wish is what to do to which rows.
type Wish struct {
	Kind   string     `json:"kind" enum:"requeue,republish,replay,discard,sign-out,erase" doc:"requeue makes FAILED rows PENDING; republish does so with PUBLISHED events, which ids name; replay hands dead letters to their consumer again; discard deletes them; sign-out ends the sessions of the user in filter.owner; erase deletes that user's identities and personal data." example:"requeue"`
	Queue  string     `json:"queue" enum:"entitlement-outbox,transfer-outbox,notifications,notification-letters,settlement-letters,sessions,accounts" doc:"Where." example:"notifications"`
	Filter act.Filter `json:"filter" required:"false" doc:"Which rows; all of the queue's when it is left out."`
}

type counted struct {
	Fits int  `json:"fits" doc:"Rows that fit the filter now." example:"250"`
	More bool `json:"more" doc:"Whether there are more: a dry run counts 100,000 at most." example:"false"`
}

func (f *function) dryRun(ctx context.Context, in *struct{ Body Wish }) (*struct{ Body counted }, error) {
	n, err := f.count(ctx, in.Body)
	return &struct{ Body counted }{counted{n, n >= act.MaxCounted}}, err
}

func (f *function) count(ctx context.Context, w Wish) (int, error) {
	q, err := f.queue(w.Queue)
	if err != nil {
		return 0, err
	}
	return q.desk.Count(ctx, act.Order{Act: act.Act{Kind: w.Kind, Queue: w.Queue, Filter: w.Filter}})
}

// Order is a Wish that is to be done.
type Order struct {
	Wish
	Reason    string `json:"reason" minLength:"1" maxLength:"500" format:"printable" doc:"Why; it is kept with the act." example:"INC-42: the receiver is back"`
	PerSecond int    `json:"per_second" required:"false" default:"100" minimum:"1" maximum:"1000" doc:"Rows a second, at most." example:"100"`
	AtMost    int64  `json:"at_most" minimum:"1" doc:"Rows in all, at most: what the dry run counted." example:"250"`
}

type beginRequest struct {
	fn.KeyHeader
	Body Order
}

func (f *function) begin(ctx context.Context, in *beginRequest) (*struct{ Body act.Act }, error) {
	begun, err := f.order(ctx, in.Body, in.Key())
	return &struct{ Body act.Act }{begun}, err
}

// order records an act, and wakes this function to do it.
func (f *function) order(ctx context.Context, o Order, key string) (act.Act, error) {
	q, err := f.queue(o.Queue)
	if err != nil {
		return act.Act{}, err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return act.Act{}, err
	}
	hash, err := idempotency.Fingerprint("act", "", body)
	if err != nil {
		return act.Act{}, err
	}
	if o.Kind == act.Erase || o.Kind == act.SignOut {
		o.AtMost = everything // a person is not erased in part
	}
	begun, err := q.desk.Begin(ctx, act.Order{
		Act: act.Act{
			Kind: o.Kind, Queue: o.Queue, Filter: o.Filter, Actor: actorOf(ctx), Reason: o.Reason, PerSecond: o.PerSecond, AtMost: o.AtMost,
		}, Key: key, Hash: hash,
	})
	if err == nil {
		f.env.Logger().InfoContext(ctx, "act begun", "act_id", begun.ID, "kind", o.Kind, "queue", o.Queue, "actor", begun.Actor, "reason", o.Reason)
		f.wake()
	}
	return begun, err
}

// everything is an at_most that no act reaches.
const everything = math.MaxInt32

// actorOf is who asks: a person or a service, by the issuer's name.
func actorOf(ctx context.Context) string { return auth.From(ctx).Subject }

type actList struct {
	Acts []act.Act `json:"acts" nullable:"false"`
	fn.NextPage
}

func (f *function) listActs(ctx context.Context, in *struct{ fn.Page }) (*struct{ Body actList }, error) {
	list, next, err := f.acts(ctx, in.Cursor, in.Limit)
	return &struct{ Body actList }{actList{list, fn.NextPage{NextCursor: next}}}, err
}

// acts merges the acts of all domains.
func (f *function) acts(ctx context.Context, from string, limit int) ([]act.Act, string, error) {
	before, err := cursor.ReadID(from, uuid.Max)
	if err != nil {
		return nil, "", err
	}
	limit = cursor.Limit(limit)
	all, failures := []act.Act{}, []error{}
	for _, desk := range f.desks {
		list, err := desk.List(ctx, before, limit+1)
		if err != nil { // a database that is away hides its own acts only
			failures = append(failures, err)
			f.env.Logger().WarnContext(ctx, "acts not read", "error", err.Error())
		}
		all = append(all, list...)
	}
	if len(failures) == len(f.desks) {
		return nil, "", failures[0]
	}
	slices.SortFunc(all, func(a, b act.Act) int { return strings.Compare(b.ID, a.ID) })
	page, next := cursor.Page(all, limit, func(last int) []byte {
		key, _ := id.Parse(id.Act, all[last].ID) // it was made of one
		return cursor.ID(key)
	})
	return page, next, nil
}

// ActPath is the path of an act.
type ActPath struct {
	ActID string `path:"act_id" maxLength:"64" doc:"Which." example:"act_01h455vb4pex5vsknk084sn02q"`
}

// one finds an act, in whichever domain it is, and does something with it.
func (f *function) one(actID string, do func(*act.Desk) (act.Act, error)) (found *struct{ Body act.Act }, err error) {
	err = act.ErrNotFound
	for _, desk := range f.desks {
		a, failed := do(desk)
		if failed == nil {
			return &struct{ Body act.Act }{a}, nil
		}
		if !errors.Is(failed, act.ErrNotFound) {
			err = failed // another database may have the act
		}
	}
	return nil, err
}

func (f *function) getAct(ctx context.Context, in *ActPath) (*struct{ Body act.Act }, error) {
	return f.one(in.ActID, func(d *act.Desk) (act.Act, error) { return d.Get(ctx, in.ActID) })
}

func (f *function) stop(ctx context.Context, in *ActPath) (*struct{ Body act.Act }, error) {
	stopped, err := f.one(in.ActID, func(d *act.Desk) (act.Act, error) { return d.Stop(ctx, in.ActID, actorOf(ctx)) })
	if err == nil {
		f.env.Logger().InfoContext(ctx, "act stopped", "act_id", in.ActID, "actor", actorOf(ctx))
	}
	return stopped, err
}

func (f *function) resume(ctx context.Context, in *ActPath) (*struct{ Body act.Act }, error) {
	resumed, err := f.one(in.ActID, func(d *act.Desk) (act.Act, error) { return d.Resume(ctx, in.ActID) })
	if err == nil {
		f.env.Logger().InfoContext(ctx, "act resumed", "act_id", in.ActID, "actor", actorOf(ctx))
		f.wake()
	}
	return resumed, err
}

// tick works on acts, and takes a sample when one is due.
func (f *function) tick() {
	var sources []tick.Source
	for _, desk := range f.desks {
		sources = append(sources, tick.Source{Name: desk.Table, Step: func(ctx context.Context) (lease.Report, error) {
			p, err := desk.Step(ctx, func(a act.Act, err error) {
				f.env.Logger().WarnContext(ctx, "act not carried on", "act_id", a.ID, "error", err.Error())
			})
			return lease.Report{Claimed: p.Done + p.Skipped, Done: p.Done, Dead: p.Skipped, More: p.More}, err
		}})
	}
	f.env.Tick(append(sources, tick.Source{Name: "samples", Step: f.sample})...)
}
