package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// plot is a picture of lines; both axes are logarithmic, so that a line keeps its slope
// whatever its size.
type plot struct {
	file  string // its name, without ending
	title string
	x, y  string // what the axes show, with units
	lines []line
}

// line is one thing that was measured at growing x.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Sizes of a picture, in px.
const (
	plotWidth, plotHeight           = 760, 380
	plotLeft, plotRight             = 70, 230 // names of lines stand at the right
	plotTop, plotBottom             = 40, 50
	plotInnerWidth, plotInnerHeight = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	nameHeight                      = 16
)

var lineColors = []string{"#2f6fde", "#d9480f", "#2b8a3e", "#862e9c", "#868e96"}

// svg draws the plot. Its text is grey, which can be read on white and on black.
func (p plot) svg() string {
	xs, ys := axisOf(p.lines, func(at point) float64 { return at.x }), axisOf(p.lines, func(at point) float64 { return at.y })
	px := func(x float64) float64 { return plotLeft + xs.part(x)*plotInnerWidth }
	py := func(y float64) float64 { return plotTop + (1-ys.part(y))*plotInnerHeight }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#868e96">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&out, `<title>%s</title><text x="%d" y="20" font-size="14">%s</text>`+"\n", p.title, plotLeft, p.title)
	for _, x := range xs.ticks() {
		fmt.Fprintf(&out, `<path d="M%.1f %dV%d" stroke="#868e96" stroke-opacity="0.25"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			px(x), plotTop, plotTop+plotInnerHeight, px(x), plotTop+plotInnerHeight+18, short(x))
	}
	for _, y := range ys.ticks() {
		fmt.Fprintf(&out, `<path d="M%d %.1fH%d" stroke="#868e96" stroke-opacity="0.25"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, py(y), plotLeft+plotInnerWidth, plotLeft-8, py(y)+4, short(y))
	}
	fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", plotLeft+plotInnerWidth/2, plotHeight-12, p.x)
	fmt.Fprintf(&out, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", plotTop+plotInnerHeight/2, p.y)
	names := apartFrom(p.lines, py)
	for i, l := range p.lines {
		color := lineColors[i%len(lineColors)]
		var path strings.Builder
		for j, at := range l.points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], px(at.x), py(at.y))
		}
		fmt.Fprintf(&out, `<g stroke="%s" fill="%s"><path d="%s" fill="none" stroke-width="2"/>`, color, color, path.String())
		for _, at := range l.points {
			fmt.Fprintf(&out, `<circle cx="%.1f" cy="%.1f" r="3"><title>%s: %s</title></circle>`, px(at.x), py(at.y), short(at.x), short(at.y))
		}
		fmt.Fprintf(&out, `<text x="%d" y="%.1f" stroke="none">%s</text></g>`+"\n", plotLeft+plotInnerWidth+10, names[i]+4, l.name)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// apartFrom returns where each line's name stands: at its end, and below another's name.
func apartFrom(lines []line, py func(float64) float64) []float64 {
	at := make([]float64, len(lines))
	for i, l := range lines {
		at[i] = py(l.points[len(l.points)-1].y)
	}
	for range lines { // each round moves one at least
		for i := range at {
			for j := range at {
				if i != j && math.Abs(at[i]-at[j]) < nameHeight && (at[i] > at[j] || at[i] == at[j] && i > j) {
					at[i] = at[j] + nameHeight
				}
			}
		}
	}
	return at
}

// axis is a logarithmic axis between two values.
type axis struct{ from, to float64 }

func axisOf(lines []line, of func(point) float64) axis {
	a := axis{math.Inf(1), math.Inf(-1)}
	for _, l := range lines {
		for _, at := range l.points {
			a.from, a.to = min(a.from, of(at)), max(a.to, of(at))
		}
	}
	// From the last tick before the values to the first one after them.
	ticks := axis{a.from / 10, a.to * 10}.ticks()
	first, last := 0, len(ticks)-1
	for first < last && ticks[first+1] <= a.from {
		first++
	}
	for last > first+1 && ticks[last-1] >= a.to {
		last--
	}
	return axis{ticks[first], ticks[last]}
}

func (a axis) part(v float64) float64 { return math.Log(v/a.from) / math.Log(a.to/a.from) }

// ticks are the numbers 1, 2 and 5 of each power of ten within the axis; of a long one
// only the powers.
func (a axis) ticks() []float64 {
	var all []float64
	digits := []float64{1, 2, 5}
	if a.to/a.from > 1e3 {
		digits = digits[:1]
	}
	for power := math.Floor(math.Log10(a.from)); power <= math.Log10(a.to); power++ {
		for _, digit := range digits {
			if v := digit * math.Pow(10, power); v >= a.from*0.999 && v <= a.to*1.001 {
				all = append(all, v)
			}
		}
	}
	return all
}

// short writes a number as axes show it: 20k, 0.5.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}

// draw writes a plot's file.
func (b *bench) draw(p plot) error {
	dir := filepath.Join(b.dir, "plots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, p.file+".svg")
	b.progress("  %s", path)
	return os.WriteFile(path, []byte(p.svg()), 0o644)
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
