package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

const (
	// samplesKey is a stream with one entry for each slot of sampleEvery. They are for
	// the console's plots, which work without a metrics system; losing them loses
	// nothing else.
	samplesKey  = "console:samples"
	sampleEvery = 10 * time.Second
	maxSamples  = 8640 // a day
)

// Sample is what happened within ten seconds, and what waited at their end.
type Sample struct {
	At        time.Time `json:"at" doc:"The end of the ten seconds."`
	Changes   float64   `json:"changes" doc:"Grants and revokes a second." example:"12.5"`
	Sent      float64   `json:"sent" doc:"Notifications sent a second." example:"12.5"`
	SentP50MS int64     `json:"sent_p50_ms" doc:"From the event to its delivery, median." example:"8"`
	SentP99MS int64     `json:"sent_p99_ms" doc:"The same, 99th percentile." example:"35"`
	Transfers float64   `json:"transfers" doc:"Transfers a second." example:"4"`
	LagMS     int64     `json:"lag_ms" doc:"How long the oldest row of an outbox or notification has waited." example:"0"`
	Waiting   int       `json:"waiting" doc:"Players in queues." example:"3"`
	MatchMS   int64     `json:"match_ms" doc:"How long recently matched players waited, in the slowest queue." example:"900"`
}

// sample takes the sample of the last full slot, unless some process has it already: the
// slot is the entry's id, which Redis takes once.
func (f *function) sample(ctx context.Context) (lease.Report, error) {
	until := time.Now().UTC().Truncate(sampleEvery)
	if until.UnixMilli() == f.sampled {
		return lease.Report{}, nil
	}
	s, err := f.measure(ctx, until.Add(-sampleEvery), until)
	if err != nil {
		return lease.Report{}, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return lease.Report{}, err
	}
	err = f.samples.XAdd(ctx, &redis.XAddArgs{
		Stream: samplesKey, MaxLen: maxSamples, Approx: true, ID: fmt.Sprintf("%d-1", until.UnixMilli()), Values: []any{"sample", text},
	}).Err()
	if err != nil && !strings.Contains(err.Error(), "equal or smaller") {
		return lease.Report{}, fault.Unreachable("Redis", err)
	}
	f.sampled = until.UnixMilli()
	return lease.Report{}, nil
}

func (f *function) measure(ctx context.Context, from, until time.Time) (Sample, error) {
	s := Sample{At: until}
	perSecond := func(n int) float64 { return float64(n) / until.Sub(from).Seconds() }
	p := f.parts(ctx)
	read(p, "changes", func(ctx context.Context) (int, error) { return f.entitlements.Changes(ctx, from, until) }, func(n int) { s.Changes = perSecond(n) })
	read(p, "transfers", func(ctx context.Context) (int, error) { return f.transfers.Moved(ctx, from, until) }, func(n int) { s.Transfers = perSecond(n) })
	read(p, "notifications", func(ctx context.Context) (notification.SentWithin, error) {
		return f.notifications.Sent(ctx, from, until)
	}, func(sent notification.SentWithin) {
		s.Sent, s.SentP50MS, s.SentP99MS = perSecond(sent.N), sent.P50.Milliseconds(), sent.P99.Milliseconds()
	})
	read(p, "matchmaking", f.players.States, func(states []matchmaking.State) {
		for _, state := range states {
			s.Waiting += state.Waiting
			s.MatchMS = max(s.MatchMS, state.RecentWait.Milliseconds())
		}
	})
	for _, q := range f.queues {
		if !q.hasRows() {
			continue
		}
		read(p, q.name, q.backlog, func(list []lease.Waiting) {
			for _, w := range list {
				if w.Status != lease.Failed {
					s.LagMS = max(s.LagMS, w.Oldest.Milliseconds())
				}
			}
		})
	}
	p.group.Wait()
	if len(p.away) > 0 {
		return Sample{}, fault.Unreachable(p.away[0].Part, errors.New(p.away[0].Reason)) // a hole in the plot is true, a zero is not
	}
	return s, nil
}

type sampleList struct {
	Samples []Sample `json:"samples" nullable:"false"`
}

type samplesRequest struct {
	Minutes int `query:"minutes" minimum:"1" maximum:"1440" default:"180" doc:"How far back."`
}

func (f *function) listSamples(ctx context.Context, in *samplesRequest) (*struct{ Body sampleList }, error) {
	from := time.Now().Add(-time.Duration(in.Minutes) * time.Minute).UnixMilli()
	entries, err := f.samples.XRange(ctx, samplesKey, strconv.FormatInt(from, 10), "+").Result()
	if err != nil {
		return nil, fault.Unreachable("Redis", err)
	}
	return &struct{ Body sampleList }{sampleList{samplesOf(entries)}}, nil
}

// samplesOf decodes samples; those of another version may be unreadable.
func samplesOf(entries []redis.XMessage) []Sample {
	list := make([]Sample, 0, len(entries))
	for _, entry := range entries {
		var s Sample
		text, _ := entry.Values["sample"].(string)
		if json.Unmarshal([]byte(text), &s) == nil {
			list = append(list, s)
		}
	}
	return list
}

// lastSample is the latest sample, zero if there is none of the last minute.
func (f *function) lastSample(ctx context.Context) Sample {
	entries, err := f.samples.XRevRangeN(ctx, samplesKey, "+", strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10), 1).Result()
	if list := samplesOf(entries); err == nil && len(list) == 1 {
		return list[0]
	}
	return Sample{}
}
