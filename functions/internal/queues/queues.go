// Package queues is shared by the functions of matchmaking: the configured queues, and
// their metrics.
package queues

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// Open returns the store of the configured queues.
func Open(e *fn.Env) (*matchmaking.Store, *Metrics, error) {
	s := e.Settings
	modes, err := matchmaking.NewModes(s.MatchmakingModes, s.MatchmakingRanked, s.MatchmakingAgree)
	if err != nil {
		return nil, nil, fmt.Errorf("MATCHMAKING_MODES, MATCHMAKING_RANKED and MATCHMAKING_AGREE do not fit: %w", err)
	}
	rules := matchmaking.Rules{
		Modes: modes, TTL: s.MatchmakingTTL, Windows: s.MatchmakingWindows,
		WidenEvery: s.MatchmakingWiden, QueueLimit: s.MatchmakingQueue,
	}
	if err := rules.Check(); err != nil {
		return nil, nil, err
	}
	client, err := e.Redis()
	if err != nil {
		return nil, nil, err
	}
	meter, err := e.Meter("matchmaking")
	if err != nil {
		return nil, nil, err
	}
	metrics, err := newMetrics(meter)
	if err != nil {
		return nil, nil, err
	}
	store := matchmaking.NewStore(client, rules)
	store.Observe = metrics.script
	return store, metrics, nil
}

// Metrics are the service level indicators of matchmaking; docs/slo.md says what they are
// for. The process that did the work counts it.
type Metrics struct {
	timeToMatch    metric.Float64Histogram
	scriptDuration metric.Float64Histogram
	depth          metric.Int64Gauge
	oldest         metric.Float64Gauge
	ended          metric.Int64Counter
	joins          metric.Int64Counter
	errors         metric.Int64Counter
}

// Results of tickets, for Ended.
const (
	Matched   = "matched"
	Expired   = "expired"
	Cancelled = "cancelled"
)

func newMetrics(meter metric.Meter) (*Metrics, error) {
	m := &Metrics{}
	var failed error
	keep := func(err error) {
		if err != nil {
			failed = err
		}
	}
	var err error
	m.timeToMatch, err = meter.Float64Histogram("mm.time_to_match", metric.WithUnit("s"), metric.WithDescription("From joining to being matched, of each ticket that was."))
	keep(err)
	m.scriptDuration, err = meter.Float64Histogram("mm.script.duration", metric.WithUnit("s"), metric.WithDescription("Of a Lua script, with its way to Redis and back."))
	keep(err)
	m.depth, err = meter.Int64Gauge("mm.queue.depth", metric.WithDescription("Tickets that wait, as of the last pass."))
	keep(err)
	m.oldest, err = meter.Float64Gauge("mm.queue.oldest_age", metric.WithUnit("s"), metric.WithDescription("How long the oldest of them has waited."))
	keep(err)
	m.ended, err = meter.Int64Counter("mm.match.total", metric.WithDescription("Tickets that ended, by result: matched, expired, cancelled."))
	keep(err)
	m.joins, err = meter.Int64Counter("mm.join.total", metric.WithDescription("Requests to join, by result: joined, replayed, refused (the caller's fault), failed."))
	keep(err)
	m.errors, err = meter.Int64Counter("mm.redis.errors", metric.WithDescription("Scripts that Redis did not answer, or with an error."))
	keep(err)
	return m, failed
}

func labels(pairs ...string) metric.MeasurementOption {
	set := make([]attribute.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		set = append(set, attribute.String(pairs[i], pairs[i+1]))
	}
	return metric.WithAttributes(set...)
}

func (m *Metrics) script(name string, took time.Duration, err error) {
	m.scriptDuration.Record(context.Background(), took.Seconds(), labels("script", name))
	if err != nil {
		m.errors.Add(context.Background(), 1, labels("script", name))
	}
}

// Pass counts what a pass did and saw.
func (m *Metrics) Pass(ctx context.Context, p matchmaking.Pass) {
	mode := labels("mode", p.Mode)
	m.depth.Record(ctx, int64(p.Depth), mode)
	m.oldest.Record(ctx, p.Oldest.Seconds(), mode)
	for _, match := range p.Matches {
		for _, waited := range match.Waited {
			m.timeToMatch.Record(ctx, waited.Seconds(), mode)
		}
	}
	m.Ended(ctx, p.Mode, Matched, 2*len(p.Matches))
	m.Ended(ctx, p.Mode, Expired, p.Expired)
}

// Ended counts n tickets of a mode that ended with a result.
func (m *Metrics) Ended(ctx context.Context, mode, result string, n int) {
	if n > 0 {
		m.ended.Add(ctx, int64(n), labels("mode", mode, "result", result))
	}
}

// Joined counts a request to join.
func (m *Metrics) Joined(ctx context.Context, result string) {
	m.joins.Add(ctx, 1, labels("result", result))
}
