package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// pairCounts are how many pairs a pass may make.
var pairCounts = []int{1, 10, 50, 100}

// calls is how often a pass of so many pairs is called in a round.
func (b *bench) calls(pairs int) int {
	n := max(100, 500/pairs)
	if b.sizes == quickSizes {
		return n / 10
	}
	return n
}

func callsOf(pairs int) string {
	if pairs == 1 {
		return "calls of 1 pair"
	}
	return fmt.Sprintf("calls of %d pairs", pairs)
}

// passes measures passes over queues in which few and many wait, by turns.
func (b *bench) passes(ctx context.Context) error {
	few, err := b.queues(ctx, "few")
	if err != nil {
		return err
	}
	many, err := b.queues(ctx, "many")
	if err != nil {
		return err
	}
	for _, s := range scenes {
		if err := b.scene(ctx, s, few, many); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) scene(ctx context.Context, s scene, few, many *queues) error {
	if s.windows != nil {
		few, many = few.within(s.windows), many.within(s.windows)
	}
	shallow, deep := &stage{scene: s, queues: few, size: b.waiting().few}, &stage{scene: s, queues: many, size: b.waiting().many}
	for _, st := range []*stage{shallow, deep} {
		if err := st.fillUp(ctx); err != nil {
			return err
		}
	}
	if s.lonely == nil {
		b.row(fmt.Sprintf("memory of Redis for a ticket, %s, %d wait", s.mode, deep.size), fmt.Sprintf("%.0f B", deep.bytes), "–", "–", "–")
	} else {
		b.note("%s, %d wait: a look that finds nobody takes %d µs, in passes of %d.", s.name, deep.size, deep.look.Microseconds(), mostPairs)
	}
	var all []*passes
	var arms []arm
	for _, pairs := range pairCounts {
		for _, st := range []*stage{deep, shallow} {
			p := &passes{stage: st, pairs: pairs, calls: b.calls(pairs)}
			all = append(all, p)
			arms = append(arms, arm{fmt.Sprintf("%s, %d wait, %s", s.name, st.size, callsOf(pairs)), p.run})
		}
	}
	if _, err := all[0].run(ctx); err != nil { // to warm up
		return err
	}
	all[0].forget()
	m, err := b.rounds(ctx, arms...)
	if err != nil {
		return err
	}
	var costs []string
	for i, pairs := range pairCounts {
		costs = append(costs, fmt.Sprintf("%s: %s and %s", callsOf(pairs), all[2*i].cost(), all[2*i+1].cost()))
		ratio := m[2*i] / m[2*i+1]
		reached, target := true, "–"
		if s.mode == rank {
			reached, target = ratio >= 0.7, "≥ 0.70"
		}
		b.row(fmt.Sprintf("matches, %s, %d wait, %s", s.name, deep.size, callsOf(pairs)), all[2*i].text(m[2*i]),
			fmt.Sprintf("%d wait: %s", shallow.size, all[2*i+1].text(m[2*i+1])), judged(ratio, reached), target)
	}
	b.note("CPU of Redis for a match, %s, with %d and with %d who wait: %s.", s.name, deep.size, shallow.size, strings.Join(costs, "; "))
	if s.mode != casual {
		return nil
	}
	last := len(pairCounts) - 1
	b.atLeast(fmt.Sprintf("matches, %s, %d wait, %s", s.name, deep.size, callsOf(mostPairs)), m[2*last], callsOf(1), m[0], 4)
	for _, p := range []*passes{all[2*last-2], all[2*last]} {
		p99 := percentile(p.took, 0.99)
		b.row(fmt.Sprintf("a call of %d pairs, %s, %d wait, p99", p.pairs, s.name, deep.size), ms(p99), "–", "–", bounded(p99, 5*time.Millisecond))
	}
	return nil
}
