package matchmaking

import (
	"fmt"
	"strings"
	"time"
)

// Reason says why a ticket is not matched yet.
type Reason struct {
	Code   string `json:"code" enum:"alone,nobody_agrees,skill_window,next_pass,matcher_late,paused" doc:"For programs."`
	Detail string `json:"detail" doc:"For people." example:"Nobody else waits in this queue."`
}

const (
	// estimateFor is how long an estimate stays valid.
	estimateFor = 10 * time.Minute
	// lateAfter is the time after the last pass at which the next one is late: ticks
	// come every second.
	lateAfter = 5 * time.Second
)

// facts is the answer of read.lua about a waiting ticket.
type facts struct {
	now, passedAt, matchedAt, nextLook time.Time
	position, depth                    int
	waitMS                             int64
	level                              int
	paused, partner, agreeing          bool
}

func factsOf(now time.Time, v []any) facts {
	return facts{
		now: now, position: int(number(v[0])), depth: int(number(v[1])),
		passedAt: moment(number(v[2])), matchedAt: moment(number(v[3])), waitMS: number(v[4]),
		nextLook: moment(number(v[5])), level: int(number(v[6])),
		paused: number(v[7]) == 1, partner: number(v[8]) == 1, agreeing: number(v[9]) == 1,
	}
}

func (f facts) waiting(mode Mode, rules Rules) *Waiting {
	w := &Waiting{Position: f.position + 1, Reason: f.reason(mode, rules)}
	if f.waitMS >= 0 && f.now.Sub(f.matchedAt) < estimateFor {
		w.EstimatedWaitMS = &f.waitMS
	}
	return w
}

func (f facts) reason(mode Mode, rules Rules) Reason {
	late := f.now.Sub(f.passedAt) > lateAfter
	switch {
	case f.paused:
		return Reason{"paused", "Matching is paused until the matches made so far are announced."}
	case f.partner && late:
		return Reason{"matcher_late", "Somebody fits; the pass that pairs you is late."}
	case f.partner:
		return Reason{"next_pass", "Somebody fits; the next pass pairs you."}
	case f.depth < 2:
		return Reason{"alone", "Nobody else waits in this queue."}
	case !f.agreeing:
		return Reason{"nobody_agrees", fmt.Sprintf("Nobody who waits has the same %s.", strings.Join(mode.Agree, " and "))}
	}
	width := rules.Windows[min(f.level, len(rules.Windows)-1)]
	detail := fmt.Sprintf("Nobody who waits is within %d of your skill, or finds you within theirs", width)
	if f.level+1 < len(rules.Windows) && f.nextLook.After(f.now) {
		detail += fmt.Sprintf("; at %s you look as far as %d", f.nextLook.Format(time.TimeOnly)+" UTC", rules.Windows[f.level+1])
	}
	return Reason{"skill_window", detail + "."}
}
