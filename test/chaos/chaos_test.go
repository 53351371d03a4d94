//go:build chaos

// Package chaos_test has everything go wrong at once. Clients grant, revoke, pay and play
// against the whole system, which runs as processes on real servers, while processes and
// servers are killed, paused, cut off, filled and made to forget, several at a time. Then
// all faults end, and what the clients were answered is compared with what is there.
package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

const (
	// quietWithin bounds how long anything may be under way after the last fault. What the
	// broker lost is found when it is RECONCILE_AFTER old, 30 s, and published again then.
	quietWithin = time.Minute
	sayEvery    = 10 * time.Second
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(servingNATS); dir != "" {
		fmt.Fprintln(os.Stderr, serveNATS(dir))
		os.Exit(1)
	}
	code := kit.Main(m)
	program.Clean()
	os.Exit(code)
}

// perHour is how many faults happen in an hour at least.
const perHour = 3000

// TestChaos lets faults happen for CHAOS_FOR, from CHAOS_SEED, of those whose names match
// CHAOS_FAULTS, and fails if a promise was broken.
func TestChaos(t *testing.T) {
	length, err := time.ParseDuration(setting("CHAOS_FOR", "90s"))
	kit.Must(t, err)
	seed, err := strconv.ParseUint(setting("CHAOS_SEED", strconv.Itoa(int(time.Now().UnixNano()%1_000_000))), 10, 64)
	kit.Must(t, err)
	names, err := regexp.Compile(setting("CHAOS_FAULTS", ""))
	kit.Must(t, err)
	again := fmt.Sprintf("CHAOS_SEED=%d CHAOS_FOR=%s CHAOS_CLOCKS=%q CHAOS_FAULTS=%q", seed, length, setting("CHAOS_CLOCKS", ""), names)
	say("%s", again)
	w := newLone(t, seed)
	lanes := w.lanes(length, names)
	w.survives(func() {
		failing, endFaults := context.WithTimeout(t.Context(), length)
		defer endFaults()
		var faults sync.WaitGroup
		for n, l := range lanes {
			random := rand.New(rand.NewPCG(seed, uint64(1_000_000+n)))
			faults.Go(func() {
				if err := w.run(failing, l, random); err != nil {
					t.Errorf("%s: %v", l.name, err)
					endFaults()
				}
			})
		}
		faults.Wait()
	})
	if n := len(w.faults); names.String() == "" && length >= time.Hour && float64(n) < perHour*length.Hours() {
		t.Errorf("%d faults happened, want %d an hour", n, perHour)
	}
	hit, rare := w.pointsHit()
	say("points:%s", hit)
	if len(rare) > 0 && names.String() == "" && length >= time.Hour {
		t.Errorf("hit fewer than %d times: %s", eachPoint, strings.Join(rare, ", "))
	}
	for _, l := range lanes {
		for _, f := range l.faults {
			due := length >= time.Hour && time.Duration(len(l.faults))*f.length < length // each has its turn
			if due && !slices.ContainsFunc(w.faults, func(h happened) bool { return h.name == f.name }) {
				t.Errorf("%q never happened", f.name)
			}
		}
	}
	if n := w.remembered(); n < 100 {
		t.Errorf("Redis remembered %d matched tickets only: this run shows little of them", n)
	}
	if t.Failed() {
		t.Errorf("again: %s make chaos", again)
	}
}

// survives lets faults happen while clients work, waits until nothing is under way any
// more, and fails the test if a promise was broken.
func (w *world) survives(happen func()) {
	t := w.t
	payers, waiting := w.register()
	say("everything runs")
	loading, endLoad := context.WithCancel(t.Context())
	defer endLoad()
	wait := w.load(loading, payers, waiting)
	var watching sync.WaitGroup
	watched, endWatching := context.WithCancel(t.Context())
	defer endWatching()
	every(watched, &watching, time.Second, w.reconcile.tick)
	every(watched, &watching, time.Second, w.watchMoney)
	every(watched, &watching, sayEvery, func() { say("%s", w.progress()) })

	happen()
	healed := time.Now()
	say("all faults are over: %s", w.progress())
	endLoad()
	wait()
	say("all clients were answered, %.1f s after the last fault", time.Since(healed).Seconds())
	pending := "?"
	for ; pending != "" && time.Since(healed) < quietWithin; kit.Pause(sayEvery / 50) {
		pending = w.pending()
	}
	quiet := time.Since(healed)
	if pending != "" {
		w.breach("%.0f s after the last fault there are %s", quiet.Seconds(), pending)
	}
	endWatching()
	watching.Wait()
	say("nothing is under way any more, %.1f s after the last fault", quiet.Seconds())
	w.check()
	say("checked; Redis remembered %d of %d matched tickets until their players were notified", w.remembered(), len(w.answers["match"]))

	fmt.Fprintf(os.Stderr, "\n%s\n%s\nlongest without an answered grant %.1f s, transfer %.1f s, join %.1f s; quiet after %.1f s\n\n", w.summary(), w.progress(),
		w.longestPause("grant").Seconds(), w.longestPause("transfer").Seconds(), w.longestPause("join").Seconds(), quiet.Seconds())
	if len(w.broken) > 0 {
		slices.Sort(w.broken)
		for _, what := range w.broken[:min(len(w.broken), 50)] {
			t.Error(what)
		}
		t.Errorf("%d promises were broken", len(w.broken))
		w.keepLogs()
	}
	for _, kind := range []string{"grant", "transfer", "match"} {
		if n := len(w.answers[kind]); n < 100 {
			t.Errorf("a %s was answered %d times only: this run shows little", kind, n)
		}
	}
}

var began = time.Now()

// say prints a line at once, with the time since the start.
func say(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "%7.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, arguments...))
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
