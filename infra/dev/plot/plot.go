// Package plot draws lines as SVG.
package plot

import (
	"fmt"
	"math"
	"strings"
)

// Plot is a picture of lines. Both axes are logarithmic, so that a line keeps its slope
// whatever its size, unless the plot is Linear: then they begin at 0.
type Plot struct {
	Title  string
	X, Y   string // what the axes show, with units
	Linear bool
	Lines  []Line
}

// Line is one thing that was measured at growing x.
type Line struct {
	Name   string
	Points []Point
}

// Point is one measurement.
type Point struct{ X, Y float64 }

// Sizes of a picture, in px.
const (
	plotWidth, plotHeight           = 760, 380
	plotLeft, plotRight             = 70, 230 // names of lines stand at the right
	plotTop, plotBottom             = 40, 50
	plotInnerWidth, plotInnerHeight = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	nameHeight                      = 16
)

var lineColors = []string{"#2f6fde", "#d9480f", "#2b8a3e", "#862e9c", "#868e96"}

// SVG draws the plot. Its text is grey, which can be read on white and on black.
func (p Plot) SVG() string {
	xs, ys := p.axis(func(at Point) float64 { return at.X }), p.axis(func(at Point) float64 { return at.Y })
	px := func(x float64) float64 { return plotLeft + xs.part(x)*plotInnerWidth }
	py := func(y float64) float64 { return plotTop + (1-ys.part(y))*plotInnerHeight }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#868e96">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&out, `<title>%s</title><text x="%d" y="20" font-size="14">%s</text>`+"\n", p.Title, plotLeft, p.Title)
	for _, x := range xs.ticks() {
		fmt.Fprintf(&out, `<path d="M%.1f %dV%d" stroke="#868e96" stroke-opacity="0.25"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			px(x), plotTop, plotTop+plotInnerHeight, px(x), plotTop+plotInnerHeight+18, short(x))
	}
	for _, y := range ys.ticks() {
		fmt.Fprintf(&out, `<path d="M%d %.1fH%d" stroke="#868e96" stroke-opacity="0.25"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, py(y), plotLeft+plotInnerWidth, plotLeft-8, py(y)+4, short(y))
	}
	fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", plotLeft+plotInnerWidth/2, plotHeight-12, p.X)
	fmt.Fprintf(&out, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", plotTop+plotInnerHeight/2, p.Y)
	names := apartFrom(p.Lines, py)
	for i, l := range p.Lines {
		color := lineColors[i%len(lineColors)]
		var path strings.Builder
		for j, at := range l.Points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], px(at.X), py(at.Y))
		}
		fmt.Fprintf(&out, `<g stroke="%s" fill="%s"><path d="%s" fill="none" stroke-width="2"/>`, color, color, path.String())
		for _, at := range l.Points {
			fmt.Fprintf(&out, `<circle cx="%.1f" cy="%.1f" r="3"><title>%s: %s</title></circle>`, px(at.X), py(at.Y), short(at.X), short(at.Y))
		}
		fmt.Fprintf(&out, `<text x="%d" y="%.1f" stroke="none">%s</text></g>`+"\n", plotLeft+plotInnerWidth+10, names[i]+4, l.Name)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// apartFrom returns where each line's name stands: at its end, and below another's name.
func apartFrom(lines []Line, py func(float64) float64) []float64 {
	at := make([]float64, len(lines))
	for i, l := range lines {
		at[i] = py(l.Points[len(l.Points)-1].Y)
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

// axis is an axis between two values; from 0 on it is linear.
type axis struct{ from, to float64 }

func (p Plot) axis(of func(Point) float64) axis {
	a := axis{math.Inf(1), math.Inf(-1)}
	for _, l := range p.Lines {
		for _, at := range l.Points {
			a.from, a.to = min(a.from, of(at)), max(a.to, of(at))
		}
	}
	if p.Linear {
		step := axis{0, a.to}.step()
		return axis{0, math.Ceil(a.to/step) * step}
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

func (a axis) part(v float64) float64 {
	if a.from == 0 {
		return v / a.to
	}
	return math.Log(v/a.from) / math.Log(a.to/a.from)
}

// step is between two ticks of a linear axis: 1, 2 or 5 of a power of ten, so that there
// are ten at most.
func (a axis) step() float64 {
	power := math.Pow(10, math.Floor(math.Log10(a.to/10)))
	for _, digit := range []float64{1, 2, 5} {
		if a.to/(digit*power) <= 10 {
			return digit * power
		}
	}
	return 10 * power
}

// ticks are the numbers 1, 2 and 5 of each power of ten within the axis, of a long one
// only the powers; or of a linear one the multiples of its step.
func (a axis) ticks() []float64 {
	var all []float64
	if a.from == 0 {
		for n := 0.0; n*a.step() <= a.to*1.001; n++ {
			all = append(all, n*a.step())
		}
		return all
	}
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
