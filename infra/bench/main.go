// Command bench measures what the system can do, each thing beside a limit or a
// peer on the same servers in the same minute, by turns. On a noisy machine only
// the ratios mean anything. It starts a private, durable Postgres, a NATS, a Redis
// and an issuer under .local/bench, stops them, and prints a Markdown table:
//
//	go run ./infra/bench                   # everything, in about 20 minutes
//	go run ./infra/bench -quick            # small counts: does it work
//	go run ./infra/bench -only relay,claim
//	go run ./infra/bench -against v1.2    # this tree beside another commit
//	go run ./infra/bench -peers           # beside River, Watermill and Nakama
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxRun bounds a whole run, whatever happens.
const maxRun = 30 * time.Minute

// experiments are all measurements, in the order of the table.
var experiments = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"grant", (*bench).grant},
	{"naive", (*bench).naive},
	{"relay", (*bench).relay},
	{"backlog", (*bench).backlog},
	{"claim", (*bench).claim},
	{"consume", (*bench).consume},
	{"latency", (*bench).latency},
	{"drained", (*bench).drained},
	{"front", (*bench).front},
	{"streams", (*bench).streams},
	{"overload", (*bench).overload},
	{"abuse", (*bench).abuse},
	{"footprint", (*bench).footprint},
	{"matchmaking", (*bench).matchmaking},
	{"transfer", (*bench).transfer},
	{"costs", (*bench).costs},
	{"curve-clients", (*bench).clientCurves},
	{"curve-backlog", (*bench).backlogCurve},
	{"curve-waiting", (*bench).waitingCurve},
	{"curve-accounts", (*bench).accountCurve},
}

func main() {
	if os.Getenv(peerVariable) != "" {
		if err := servePeer(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: peer:", err)
			os.Exit(1)
		}
		return
	}
	var names []string
	for _, e := range experiments {
		names = append(names, e.name)
	}
	only := flag.String("only", "", "which of "+strings.Join(names, ", ")+", separated by commas; all when empty")
	quick := flag.Bool("quick", false, "small counts: shows that it works, not how fast")
	out := flag.String("out", filepath.Join(".local", "bench", "result.md"), "where the table is written to")
	serve := flag.String("serve", "", "a build of infra/miniserver to measure, instead of building it")
	most := flag.Int("most", 100_000, "the most events, players and accounts of curves")
	beside := flag.Bool("peers", false, "measure beside other projects (River, Watermill, Nakama), which are built first; nothing else is measured then")
	other := flag.String("against", "", "a commit that this tree is measured beside, over HTTP; nothing else is measured then")
	flag.Parse()

	debug.SetGCPercent(200) // as infra/miniserver: parts of the system run in this process
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	chosen := names
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			fmt.Fprintf(os.Stderr, "bench: there is no %q; there are %s\n", name, strings.Join(names, ", "))
			os.Exit(2)
		}
	}
	b := &bench{dir: filepath.Join(".local", "bench"), sizes: fullSizes, serve: *serve, other: *other, beside: *beside, most: *most, began: time.Now()}
	if *quick {
		b.sizes, b.most = quickSizes, min(*most, 1_000)
	}
	if err := b.run(ctx, chosen, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the chosen experiments and writes the table. One that fails is left out of
// the table and reported at the end.
func (b *bench) run(ctx context.Context, chosen []string, out string) (err error) {
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.start(ctx); err != nil {
		return err
	}
	var failures []error
	measure := func(name string, run func(*bench, context.Context) error) {
		b.progress("%s", name)
		if err := run(b, ctx); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", name, err))
			b.progress("%s failed: %v", name, err)
		}
		if err := b.tidy(ctx); err != nil {
			failures = append(failures, fmt.Errorf("after %s: %w", name, err))
		}
	}
	if b.other != "" {
		measure("against "+b.other, (*bench).against)
		chosen = nil
	}
	if b.beside {
		measure("outboxes", (*bench).outboxes)
		measure("games", (*bench).games)
		chosen = nil
	}
	for _, e := range experiments {
		if slices.Contains(chosen, e.name) && ctx.Err() == nil {
			measure(e.name, e.run)
		}
	}
	text := b.markdown()
	fmt.Print(text)
	return errors.Join(append(failures, os.WriteFile(out, []byte(text), 0o644), ctx.Err())...)
}

// progress prints to stderr what is being done.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%4.0fs] "+format+"\n", append([]any{time.Since(b.began).Seconds()}, args...)...)
}
