package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/auth"
)

// allTogether is the row of the process that holds every function.
const allTogether = "all in one process"

// start is one start of a process: the time from its exec to the first 200 of each probe,
// and its resident memory then.
type start struct {
	alive, ready time.Duration
	resident     float64 // MiB
}

// coldStarts measures the start of each function of the registry, and of all of them
// in one process, by turns, with their stores running. Readiness takes a connection
// to each store that the function needs.
func (b *bench) coldStarts(ctx context.Context) error {
	environment, err := b.everySetting(ctx)
	if err != nil {
		return err
	}
	names := []string{allTogether}
	for _, f := range functions.All {
		names = append(names, f.Name)
	}
	starts := map[string][]start{}
	for range b.sizes.starts {
		for _, name := range names {
			own := environment
			if name != allTogether {
				own = append(slices.Clone(environment), "FUNCTION="+name)
			}
			s, err := b.startOnce(ctx, own)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			starts[name] = append(starts[name], s)
		}
	}
	binary, err := os.Stat(b.serve)
	if err != nil {
		return err
	}
	b.tables = append(b.tables, startTable(names, starts, b.sizes.starts, float64(binary.Size())/1e6))
	return nil
}

// everySetting starts the stores and returns the settings that lead to them.
func (b *bench) everySetting(ctx context.Context) ([]string, error) {
	database, err := b.database(ctx, "starts")
	if err != nil {
		return nil, err
	}
	nats, err := b.nats(ctx, "starts")
	if err != nil {
		return nil, err
	}
	redis, err := b.redis(ctx, "starts")
	if err != nil {
		return nil, err
	}
	private, public, err := auth.NewKeyPair()
	return []string{
		"DATABASE_URL=" + database, "NATS_URL=" + nats.URL(), "REDIS_URL=" + redis.URL(), "OIDC_ISSUER=" + b.issuer.URL(),
		"IDENTITY_SIGNING_KEY=" + private, "IDENTITY_VERIFY_KEYS=" + public, "FUNCTION_URL=http://{function}.invalid", "SCHEDULE=off",
	}, err
}

func (b *bench) startOnce(ctx context.Context, environment []string) (s start, err error) {
	began := time.Now()
	command, port, err := b.exec(ctx, b.serve, filepath.Join(b.dir, "start.log"), environment...)
	if err != nil {
		return s, err
	}
	defer func() { _ = command.End(inOrder) }()
	address := "127.0.0.1:" + strconv.Itoa(port)
	if err := answers(ctx, address, "/health/liveness", 200*time.Microsecond); err != nil {
		return s, err
	}
	s.alive = time.Since(began)
	if err := answers(ctx, address, "/health/readiness", 200*time.Microsecond); err != nil {
		return s, err
	}
	s.ready = time.Since(began)
	s.resident, err = memoryOf(command.Process.Pid, currentMemory)
	return s, err
}

func startTable(names []string, starts map[string][]start, rounds int, megabytes float64) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Medians (and the slowest) of %d starts by turns; one binary of %.1f MB holds every function.\n\n", rounds, megabytes)
	out.WriteString("| function | exec → alive | exec → ready | resident then |\n|---|---|---|---|\n")
	for _, name := range names {
		var alive, ready []time.Duration
		var resident []float64
		for _, s := range starts[name] {
			alive, ready, resident = append(alive, s.alive), append(ready, s.ready), append(resident, s.resident)
		}
		fmt.Fprintf(&out, "| %s | %s (%s) | %s (%s) | %.1f MiB |\n", name, ms(percentile(alive, 0.5)), ms(slices.Max(alive)), ms(percentile(ready, 0.5)), ms(slices.Max(ready)), median(resident))
	}
	return out.String()
}
