package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/plot"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// mostAccounts bounds the accounts of curves: each is opened by itself.
const mostAccounts = 100_000

// growing are 1,000 and ten times as many, and so on, up to b.most.
func (b *bench) growing() []int {
	var all []int
	for n := max(min(1_000, b.most), 1); n <= b.most; n *= 10 {
		all = append(all, n)
	}
	return all
}

// sample is one point of a curve: what is measured there, and its p99 of each round.
type sample struct {
	line string
	x    int
	run  func(ctx context.Context) (perSecond float64, took []time.Duration, err error)
	p99  []time.Duration
}

// measured measures samples by turns and returns the lines of their rates (a second) and of
// their p99 (ms), in the order in which lines come first.
func (b *bench) measured(ctx context.Context, samples []*sample) (rates, times []plot.Line, err error) {
	arms := make([]arm, len(samples))
	for i, s := range samples {
		arms[i] = arm{fmt.Sprintf("%s, %d", s.line, s.x), func(ctx context.Context) (float64, error) {
			rate, took, err := s.run(ctx)
			s.p99 = append(s.p99, percentile(took, 0.99))
			return rate, err
		}}
	}
	m, err := b.rounds(ctx, arms...)
	if err != nil {
		return nil, nil, err
	}
	index := map[string]int{}
	for i, s := range samples {
		n, ok := index[s.line]
		if !ok {
			n = len(rates)
			index[s.line] = n
			rates, times = append(rates, plot.Line{Name: s.line}), append(times, plot.Line{Name: s.line})
		}
		rates[n].Points = append(rates[n].Points, plot.Point{X: float64(s.x), Y: m[i]})
		times[n].Points = append(times[n].Points, plot.Point{X: float64(s.x), Y: inMS(percentile(s.p99, 0.5))})
	}
	return rates, times, nil
}

// clientCurves draws rates and times with more and more clients, beside what the load generator can do at most.
func (b *bench) clientCurves(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	token, err := issuer.shop()
	if err != nil {
		return err
	}
	s, players, err := b.door(ctx, "curves", issuer, playerCount, "WAKES=false", "SCHEDULE=off")
	if err != nil {
		return err
	}
	p, err := b.peer(ctx, s, issuer)
	if err != nil {
		return err
	}
	reads, ceiling := me(s, players, byBearer), []ask{newAsk(p.address, "/bare", players[0].bearer, "x")}
	if err := (&probe{address: s.address, pid: s.process.Pid, asks: reads}).warm(ctx, b.sizes.front/3); err != nil {
		return err
	}
	asking := func(address string, asks []ask, clients int) func(context.Context) (float64, []time.Duration, error) {
		return func(ctx context.Context) (float64, []time.Duration, error) {
			return clocked(ctx, clients, b.sizes.front, asker(address, asks))
		}
	}
	var samples []*sample
	for clients := 1; clients <= 256; clients *= 4 {
		samples = append(samples,
			&sample{line: "load generator alone", x: clients, run: asking(p.address, ceiling, clients)},
			&sample{line: "GET /v1/me", x: clients, run: asking(s.address, reads, clients)},
			&sample{line: "grant", x: clients, run: func(ctx context.Context) (float64, []time.Duration, error) {
				return clocked(ctx, clients, b.sizes.front, granter(s.address, token))
			}})
	}
	rates, times, err := b.measured(ctx, samples)
	if err != nil {
		return err
	}
	return errors.Join(
		b.draw("clients-rate", plot.Plot{Title: "Requests a second over HTTP", X: "clients at once", Y: "requests/s", Lines: rates}),
		b.draw("clients-p99", plot.Plot{Title: "99 % of requests are answered within", X: "clients at once", Y: "ms", Lines: times}))
}

// backlogCurve draws the relay on deeper and deeper backlogs.
func (b *bench) backlogCurve(ctx context.Context) error {
	r, err := b.broker(ctx, "curve")
	if err != nil {
		return err
	}
	var samples []*sample
	for _, events := range b.growing() {
		samples = append(samples, &sample{line: "relay, batches of 200", x: events, run: func(ctx context.Context) (float64, []time.Duration, error) {
			rate, err := r.drain(events, 200)(ctx)
			return rate, nil, err
		}})
	}
	rates, _, err := b.measured(ctx, samples)
	if err != nil {
		return err
	}
	return b.draw("backlog", plot.Plot{Title: "Events published a second", X: "events that wait", Y: "events/s", Lines: rates})
}

// waitingCurve draws passes over fuller and fuller queues.
func (b *bench) waitingCurve(ctx context.Context) error {
	const pairs = 25 // as MATCHMAKING_PAIRS
	var samples []*sample
	for i, size := range b.growing() {
		for _, s := range scenes[:2] {
			q, err := b.queues(ctx, fmt.Sprintf("%s%d", s.mode, i))
			if err != nil {
				return err
			}
			st := &stage{scene: s, queues: q.holding(2 * size), size: size}
			if err := st.fillUp(ctx); err != nil {
				return err
			}
			p := &passes{stage: st, pairs: pairs, calls: b.calls(pairs)}
			samples = append(samples, &sample{line: s.mode, x: size, run: func(ctx context.Context) (float64, []time.Duration, error) {
				before := len(p.took)
				rate, err := p.run(ctx)
				return rate, p.took[before:], err
			}})
		}
	}
	rates, times, err := b.measured(ctx, samples)
	if err != nil {
		return err
	}
	return errors.Join(
		b.draw("waiting-rate", plot.Plot{Title: "Matches a second, in calls of 25 pairs", X: "players who wait", Y: "matches/s", Lines: rates}),
		b.draw("waiting-p99", plot.Plot{Title: "99 % of calls of 25 pairs take less than", X: "players who wait", Y: "ms", Lines: times}))
}

// accountCurve draws transfers between more and more accounts.
func (b *bench) accountCurve(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	k, err := b.bank(ctx, "curve_money", issuer, "WAKES=false", "SCHEDULE=off", "LIMIT_PLAYER_RATE=1000000", "LIMIT_PLAYER_BURST=1000000")
	if err != nil {
		return err
	}
	counts := append([]int{2, 10, 100}, b.growing()...)
	counts = slices.DeleteFunc(counts, func(n int) bool { return n > mostAccounts })
	if err := k.openMore(ctx, counts[len(counts)-1]); err != nil {
		return err
	}
	var samples []*sample
	for _, accounts := range counts {
		samples = append(samples, &sample{line: "32 clients", x: accounts, run: func(ctx context.Context) (float64, []time.Duration, error) {
			keys, err := k.issue(ctx, int(b.sizes.front.Seconds()+1)*10_000, min(accounts, playerCount))
			if err != nil {
				return 0, nil, err
			}
			return clocked(ctx, moneyClients, b.sizes.front, k.payer(keys, (*customer).send, among(accounts)))
		}})
	}
	rates, times, err := b.measured(ctx, samples)
	if err != nil {
		return err
	}
	return errors.Join(
		b.draw("accounts-rate", plot.Plot{Title: "Transfers a second over HTTP", X: "accounts", Y: "transfers/s", Lines: rates}),
		b.draw("accounts-p99", plot.Plot{Title: "99 % of transfers are answered within", X: "accounts", Y: "ms", Lines: times}))
}

// openMore opens accounts until there are n.
func (k *bank) openMore(ctx context.Context, n int) error {
	balance, err := transfer.ParseAmount(plenty)
	if err != nil {
		return err
	}
	had := len(k.accounts)
	k.accounts = append(k.accounts, make([]int64, max(n-had, 0))...)
	var next atomic.Int64
	next.Store(int64(had) - 1)
	_, err = load(ctx, moneyClients, maxRun, func(ctx context.Context) (func() error, func(), error) {
		return func() error {
			i := int(next.Add(1))
			if i >= n {
				return errEnough
			}
			id, err := openAccount(ctx, k.store, k.players[i%playerCount].userID, balance)
			if err == nil {
				k.accounts[i] = id
			}
			return err
		}, func() {}, nil
	})
	return err
}

// draw writes a plot's file.
func (b *bench) draw(name string, p plot.Plot) error {
	dir := filepath.Join(b.dir, "plots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, name+".svg")
	b.progress("  %s", path)
	return os.WriteFile(path, []byte(p.SVG()), 0o644)
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
