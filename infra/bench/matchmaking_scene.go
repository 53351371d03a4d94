package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

const (
	regions = 4
	skills  = 3_000 // from 0, of those who come from everywhere
	// pending are tickets whose partner is in the queue, beside those that fit nobody:
	// more than a pass looks at, and each look takes two.
	pending = 400
	// missing is how many tickets are matched before as many players join again.
	missing = 100
	// mostPairs is the most pairs that a pass makes.
	mostPairs = matchmaking.MaxPairs
)

// scene is a queue, its waiting players, and those who join while it is measured.
type scene struct {
	name, mode string
	// lonely, if set, makes players who fit nobody and keep waiting.
	lonely func(size int) couple
	// windows, if set, replace the default ones.
	windows []int
	// joining makes players who fit each other, or anybody who joined before.
	joining func(size int) couple
}

var scenes = []scene{
	{name: casual, mode: casual, joining: func(int) couple { return uniform }},
	{name: "rank, all fit somebody", mode: rank, joining: func(int) couple { return uniform }},
	{name: "rank, nobody fits but those who join", mode: rank, lonely: apart, joining: between, windows: equals},
}

// equals are as many windows as by default. In the first of them only equals meet, so
// that very many players can be in one region without a match.
var equals = []int{0, 1, 2, 3, 4}

// uniform returns two players of any region and skill.
func uniform(int) (a, b string) {
	one := func() string { return attributesOf(rand.IntN(regions), float64(rand.IntN(skills))) }
	return one(), one()
}

// apart returns size players no two of whom are equal.
func apart(size int) couple {
	return func(n int) (a, b string) { return spot(2*n, size, 0), spot(2*n+1, size, 0) }
}

// between returns two equal players, in the middle between two of apart.
func between(size int) couple {
	return func(int) (a, b string) {
		text := spot(rand.IntN(size), size, 0.5)
		return text, text
	}
}

// spot returns the nth of size players in all regions, whose skills are evenly spread.
func spot(n, size int, more float64) string {
	perRegion := (size + regions - 1) / regions
	return attributesOf(n%regions, (float64(n/regions)+more)*matchmaking.MaxSkill/float64(perRegion))
}

// stage is a scene on filled queues of its size.
type stage struct {
	scene
	*queues
	size  int           // of those who wait for long
	gone  int           // how many were matched, and nobody joined for them yet
	bytes float64       // of Redis for each of them
	look  time.Duration // that found nobody
}

// full is how many players wait in all.
func (s *stage) full() int {
	if s.lonely == nil {
		return s.size
	}
	return s.size + pending
}

// fillUp fills queues that it empties.
func (s *stage) fillUp(ctx context.Context) error {
	if err := s.empty(ctx); err != nil {
		return err
	}
	before, err := s.info(ctx, "memory", usedMemory)
	if err != nil {
		return err
	}
	long := s.joining
	if s.lonely != nil {
		long = s.lonely
	}
	if err := s.fill(ctx, s.mode, s.size, long(s.size)); err != nil {
		return err
	}
	after, err := s.info(ctx, "memory", usedMemory)
	if err != nil || s.lonely == nil {
		s.bytes = (after - before) / float64(s.size)
		return err
	}
	if err := s.despair(ctx); err != nil {
		return err
	}
	return s.fill(ctx, s.mode, pending, s.joining(s.size))
}

// despair runs passes until all have been found to fit nobody.
func (s *stage) despair(ctx context.Context) error {
	began := time.Now()
	for more := true; more; {
		pass, err := s.Match(ctx, s.mode, mostPairs)
		if err != nil {
			return err
		}
		if len(pass.Matches) > 0 || pass.Depth != s.size {
			return fmt.Errorf("%d of %d wait and %d pairs were matched", pass.Depth, s.size, len(pass.Matches))
		}
		more = pass.More
	}
	s.look = time.Since(began) / time.Duration(s.size)
	return nil
}

// refill lets as many players join as were matched.
func (s *stage) refill(ctx context.Context) error {
	n := s.gone
	s.gone = 0
	return s.fill(ctx, s.mode, n, s.joining(s.size))
}
