package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// bareServer is the smallest program that could answer a probe.
const bareServer = `package main

import (
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("GET /health/liveness", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	if err := http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil); err != nil {
		panic(err)
	}
}
`

const maxBinary, maxResident = 35, 64 // MB, MiB

// footprint measures memory under load, the time to the first answer, and size.
func (b *bench) footprint(ctx context.Context) error {
	if err := b.resident(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, bare := filepath.Join(dir, "main.go"), filepath.Join(dir, "bare")
	if err := os.WriteFile(source, []byte(bareServer), 0o644); err != nil {
		return err
	}
	if err := build(ctx, ".", bare, source); err != nil {
		return err
	}
	database, err := b.database(ctx, "start")
	if err != nil {
		return err
	}
	keys, err := statementKeys()
	if err != nil {
		return err
	}
	var ours, theirs []time.Duration
	for range b.sizes.starts {
		a, err := b.coldStart(ctx, b.serve, "FUNCTION=grant", "DATABASE_URL="+database, keys)
		if err != nil {
			return err
		}
		z, err := b.coldStart(ctx, bare)
		if err != nil {
			return err
		}
		ours, theirs = append(ours, a), append(theirs, z)
	}
	a, z := percentile(ours, 0.5), percentile(theirs, 0.5)
	ratio := float64(a) / float64(z)
	b.row("cold start of grant, exec → first 200", ms(a), "bare net/http: "+ms(z), judged(ratio, ratio <= 3), "≤ 3.00")

	mine, err := os.Stat(b.serve)
	if err != nil {
		return err
	}
	other, err := os.Stat(bare)
	if err != nil {
		return err
	}
	const mb = 1e6
	size := float64(mine.Size()) / mb
	b.row("binary of all functions", fmt.Sprintf("%.1f MB", size), fmt.Sprintf("bare net/http: %.1f MB", float64(other.Size())/mb),
		fmt.Sprintf("%.2f", float64(mine.Size())/float64(other.Size())), limited(size <= maxBinary, maxBinary, "MB"))
	return b.coldStarts(ctx)
}

// resident measures the memory of all functions in one process under load.
func (b *bench) resident(ctx context.Context) error {
	s, err := b.system(ctx, "resident")
	if err != nil {
		return err
	}
	before, err := memoryOf(s.process.Pid, peakMemory)
	if err != nil {
		return err
	}
	if _, err := b.grants(ctx, s.address, 64, 2*b.sizes.window); err != nil {
		return err
	}
	if err := s.drained(ctx); err != nil {
		return err
	}
	peak, err := memoryOf(s.process.Pid, peakMemory)
	if err != nil {
		return err
	}
	b.row("memory of all functions in one process, 64 clients, peak", fmt.Sprintf("%.0f MiB", peak), fmt.Sprintf("before: %.0f MiB", before),
		fmt.Sprintf("%.2f", peak/before), limited(peak <= maxResident, maxResident, "MiB"))
	return nil
}

func limited(reached bool, limit int, unit string) string {
	text := fmt.Sprintf("≤ %d %s", limit, unit)
	if !reached {
		return "**" + text + "**"
	}
	return text
}

// coldStart returns the time from starting a program to its first 200.
func (b *bench) coldStart(ctx context.Context, program string, environment ...string) (time.Duration, error) {
	began := time.Now()
	command, port, err := b.exec(ctx, program, filepath.Join(b.dir, "start.log"), environment...)
	if err != nil {
		return 0, err
	}
	err = answers(ctx, "127.0.0.1:"+strconv.Itoa(port), "/health/liveness", 200*time.Microsecond)
	took := time.Since(began)
	_ = command.End(inOrder)
	return took, err
}
