package main

import (
	"context"
	"fmt"
	"time"
)

// passes are calls of one size on a stage.
type passes struct {
	*stage
	pairs, calls int

	// Of all rounds:
	took []time.Duration // by each call
	cpu  time.Duration   // of Redis
	made int             // matches
}

// run is an arm: matches per second of calls. Between calls as many join again as were
// matched, which is not measured.
func (p *passes) run(ctx context.Context) (float64, error) {
	made := 0
	var took time.Duration
	for calls := p.calls; calls > 0; {
		before, err := p.queues.cpu(ctx)
		if err != nil {
			return 0, err
		}
		for ; calls > 0 && p.gone < missing; calls-- {
			once, matches, err := p.call(ctx)
			if err != nil {
				return 0, err
			}
			took, made = took+once, made+matches
			p.took = append(p.took, once)
		}
		after, err := p.queues.cpu(ctx)
		if err != nil {
			return 0, err
		}
		p.cpu += after - before
		if err := p.refill(ctx); err != nil {
			return 0, err
		}
	}
	p.made += made
	return float64(made) / took.Seconds(), nil
}

// call is one pass, which must leave all other tickets as they are.
func (p *passes) call(ctx context.Context) (took time.Duration, matches int, err error) {
	began := time.Now()
	pass, err := p.Match(ctx, p.mode, p.pairs)
	took = time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	p.gone += 2 * len(pass.Matches)
	if pass.Depth != p.full()-p.gone {
		return 0, 0, fmt.Errorf("%d wait, not %d", pass.Depth, p.full()-p.gone)
	}
	return took, len(pass.Matches), nil
}

// forget drops the results so far.
func (p *passes) forget() { p.took, p.cpu, p.made = nil, 0, 0 }

// text is the median of the rounds' rates, with the times of all calls.
func (p *passes) text(rate float64) string {
	perCall := float64(p.made) / float64(len(p.took))
	return fmt.Sprintf("%s, %.0f a call, p50 %s, p99 %s", perSecond(rate), perCall, ms(percentile(p.took, 0.5)), ms(percentile(p.took, 0.99)))
}

// cost is the CPU of Redis for one match.
func (p *passes) cost() string {
	return fmt.Sprintf("%d µs", (p.cpu / time.Duration(max(p.made, 1))).Microseconds())
}
