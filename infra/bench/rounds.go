package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// arm is one of the things that are compared.
type arm struct {
	name string
	run  func(context.Context) (perSecond float64, err error)
}

// rounds measures the arms by turns, every other round backwards, and returns
// each arm's median.
func (b *bench) rounds(ctx context.Context, arms ...arm) ([]float64, error) {
	results := make([][]float64, len(arms))
	for round := range b.sizes.rounds {
		for i := range arms {
			if round%2 == 1 {
				i = len(arms) - 1 - i
			}
			rate, err := arms[i].run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", arms[i].name, err)
			}
			b.progress("  round %d: %s: %.0f/s", round+1, arms[i].name, rate)
			results[i] = append(results[i], rate)
		}
	}
	medians := make([]float64, len(arms))
	for i, values := range results {
		medians[i] = median(values)
	}
	return medians, nil
}

// errEnough is a worker's answer to load that there is no more to do.
var errEnough = errors.New("enough")

// load runs workers at once for a while and returns how often per second the do of open
// succeeded. All workers are opened first.
func load(ctx context.Context, workers int, window time.Duration, open func(context.Context) (do func() error, closing func(), err error)) (float64, error) {
	jobs := make([]func() error, workers)
	for i := range jobs {
		do, closing, err := open(ctx)
		if err != nil {
			return 0, err
		}
		defer closing()
		jobs[i] = do
	}
	var done atomic.Int64
	failures := make([]error, workers)
	began := time.Now()
	deadline := began.Add(window)
	var group sync.WaitGroup
	for i, do := range jobs {
		group.Go(func() {
			for time.Now().Before(deadline) && ctx.Err() == nil {
				if err := do(); errors.Is(err, errEnough) {
					return
				} else if err != nil {
					failures[i] = err
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	rate := float64(done.Load()) / time.Since(began).Seconds()
	return rate, errors.Join(append(failures, ctx.Err())...)
}

// clocked is load that also returns how long each do took.
func clocked(ctx context.Context, workers int, window time.Duration, open func(context.Context) (do func() error, closing func(), err error)) (perSecond float64, took []time.Duration, err error) {
	each := make([][]time.Duration, workers)
	opened := 0
	perSecond, err = load(ctx, workers, window, func(ctx context.Context) (func() error, func(), error) {
		do, closing, err := open(ctx)
		mine := &each[opened]
		opened++
		return func() error {
			began := time.Now()
			err := do()
			*mine = append(*mine, time.Since(began))
			return err
		}, closing, err
	})
	return perSecond, slices.Concat(each...), err
}

// timed returns how many per second of the n that do returns are done.
func timed(do func() (n int, err error)) (float64, error) {
	began := time.Now()
	n, err := do()
	return float64(n) / time.Since(began).Seconds(), err
}
