package main

import "context"

// waiting is how many players wait in the queues that are measured.
type waiting struct{ few, many int }

func (b *bench) waiting() waiting {
	if b.sizes == quickSizes {
		return waiting{300, 3_000}
	}
	return waiting{1_000, 100_000}
}

// matchmaking measures joining beside the same commands without a script, what a
// pass costs when few and when many wait, and how long players wait to be matched
// by the whole system.
func (b *bench) matchmaking(ctx context.Context) error {
	for _, part := range []func(*bench, context.Context) error{
		(*bench).joins, (*bench).passes, (*bench).timeToMatch,
	} {
		if err := part(b, ctx); err != nil {
			return err
		}
		if err := b.tidy(ctx); err != nil { // a Redis that saves what it has takes CPU
			return err
		}
	}
	return nil
}
