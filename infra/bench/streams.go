package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

const (
	streamPath  = "/v1/me/notifications/stream"
	playerOpens = 5 // streams: a player has several tabs and devices
	firstOpen   = 100
	bareOpen    = 500
	// idleFor is longer than a stream waits until it looks for what no nudge announced.
	idleFor = 11 * time.Second
)

// streams measures the cost of an open stream, beside a bare net/http handler that keeps
// an answer open, and the time from sending a grant to its event on a stream of the
// player's, at a steady 50 a second while thousands are open. They are opened with a cookie,
// as in browsers.
func (b *bench) streams(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	open := b.sizes.streams
	s, players, err := b.door(ctx, "streams", issuer, open/playerOpens, "STREAMS_PER_PROCESS="+strconv.Itoa(open))
	if err != nil {
		return err
	}
	p, err := b.peer(ctx, s, issuer)
	if err != nil {
		return err
	}
	if err := (&probe{address: s.address, pid: s.process.Pid, asks: me(s, players, byCookie)}).warm(ctx, b.sizes.front/3); err != nil {
		return err
	}
	theirs, err := b.openStreams(ctx, p.process.Pid, bareOpen, func(int) (func(), error) { return follow(ctx, p.address, "/open", "", nil) })
	if err != nil {
		return err
	}
	events := make(chan told, firstOpen)
	ours, err := b.openStreams(ctx, s.process.Pid, open, func(n int) (func(), error) {
		heard := events
		if n >= len(players) { // one of each player's is enough
			heard = nil
		}
		return follow(ctx, s.address, streamPath, players[n%len(players)].cookie, heard)
	})
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("memory of an open stream, %d of them", open), fmt.Sprintf("%.0f KiB", ours.memory),
		fmt.Sprintf("a bare net/http answer kept open, %d of them: %.0f KiB", bareOpen, theirs.memory), judged(ours.memory/theirs.memory, true), "–")
	b.note("An open stream on which nothing happens, by session cookie, takes %d µs of the process's CPU a second: %d of them %.1f %% of one CPU.",
		ours.cpu.Microseconds(), open, float64(ours.cpu.Microseconds())*float64(open)/1e4)
	token, err := issuer.token("bench-shop", "purchase-service", auth.RoleEntitlementWriter)
	if err != nil {
		return err
	}
	if _, err := b.live(ctx, s, token, players, events, pacedPerSecond); err != nil { // to warm up
		return err
	}
	took, err := b.live(ctx, s, token, players, events, int(b.sizes.paced.Seconds()*pacedPerSecond))
	if err != nil {
		return err
	}
	p50, p99 := percentile(took, 0.5), percentile(took, 0.99)
	work := fmt.Sprintf("grant → event on a stream of the player's at %d/s, %d open streams", pacedPerSecond, open)
	b.row(work+", p50", ms(p50), "–", "–", bounded(p50, 15*time.Millisecond))
	b.row(work+", p99", ms(p99), "–", "–", bounded(p99, 60*time.Millisecond))
	return nil
}

// streamCost is what one more stream costs a process.
type streamCost struct {
	memory float64       // resident, in KiB
	cpu    time.Duration // a second, while nothing happens
}

// openStreams opens count streams by open, which returns how to close one, and measures
// the cost of those after the first ones, when the process is warm. All stay open until
// the experiment ends.
func (b *bench) openStreams(ctx context.Context, pid, count int, open func(n int) (closing func(), err error)) (streamCost, error) {
	var opened []func()
	b.onTidy(func() error {
		for _, closing := range opened {
			closing()
		}
		return nil
	})
	var memory [2]float64
	var cpu [2]time.Duration
	for i, until := range []int{firstOpen, count} {
		for len(opened) < until {
			closing, err := open(len(opened))
			if err != nil {
				return streamCost{}, err
			}
			opened = append(opened, closing)
		}
		var err error
		if cpu[i], err = idleCPU(ctx, pid); err != nil {
			return streamCost{}, err
		}
		if memory[i], err = memoryOf(pid, currentMemory); err != nil {
			return streamCost{}, err
		}
	}
	more := count - firstOpen
	return streamCost{(memory[1] - memory[0]) * 1024 / float64(more), max(0, cpu[1]-cpu[0]) / time.Duration(more)}, nil
}

// idleCPU is the CPU that a process uses in a second without requests.
func idleCPU(ctx context.Context, pid int) (time.Duration, error) {
	before, err := cpuOf(pid)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(idleFor):
	}
	after, err := cpuOf(pid)
	return time.Duration(float64(after-before) / time.Since(began).Seconds()), err
}
