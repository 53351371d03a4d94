package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	work, ours, limit, ratio, target string
}

func (b *bench) row(work, ours, limit, ratio, target string) {
	b.rows = append(b.rows, row{work, ours, limit, ratio, target})
	b.progress("  %s: %s | %s | %s | %s", work, ours, limit, ratio, target)
}

// atLeast adds a row whose ratio ours/limit should reach target.
func (b *bench) atLeast(work string, ours float64, limitName string, limit, target float64) {
	b.row(work, perSecond(ours), limitName+": "+perSecond(limit), judged(ours/limit, ours/limit >= target), fmt.Sprintf("≥ %.2f", target))
}

// judged writes a ratio, in bold where the target was missed.
func judged(ratio float64, reached bool) string {
	text := fmt.Sprintf("%.2f", ratio)
	if !reached {
		return "**" + text + "**"
	}
	return text
}

// note adds a line below the table.
func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

func (b *bench) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "Medians of %d rounds by turns, on %d CPUs that load generator, NATS, Redis, Postgres (durable) and functions share; only the ratios carry over to another machine. A ratio in bold missed its target.\n\n",
		b.sizes.rounds, runtime.NumCPU())
	out.WriteString("| work | ours | limit or peer | ratio | target |\n|---|---|---|---|---|\n")
	for _, r := range b.rows {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", r.work, r.ours, r.limit, r.ratio, r.target)
	}
	if len(b.notes) > 0 {
		out.WriteString("\n")
	}
	for _, n := range b.notes {
		out.WriteString("- " + n + "\n")
	}
	for _, t := range b.tables {
		out.WriteString("\n" + t)
	}
	return out.String()
}

func perSecond(rate float64) string {
	if rate >= 10_000 {
		return fmt.Sprintf("%.1fk/s", rate/1000)
	}
	return fmt.Sprintf("%.0f/s", rate)
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}

func median(values []float64) float64 { return percentile(values, 0.5) }

// percentile returns the value below which the fraction p of values lies, 0 of none.
func percentile[V float64 | time.Duration](values []V, p float64) V {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if p == 0.5 && len(sorted)%2 == 0 {
		return (sorted[len(sorted)/2-1] + sorted[len(sorted)/2]) / 2
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
