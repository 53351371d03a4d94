package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// The live picture: three paths, each a chain of steps with what waits there.

// Levels of a step, from well to badly.
const (
	well   = "well"
	slow   = "slow"   // something has waited for longer than slowAfter
	failed = "failed" // something needs an operator
	gone   = "away"   // it cannot be read
)

// slowAfter is when waiting rows raise an alert; see docs/slo.md.
const slowAfter = time.Minute

type way struct {
	Name  string
	Steps []step
}

type step struct {
	Name  string
	Level string
	Facts []string
	Link  string // where the stuck things are
}

type nowData struct {
	At    time.Time
	Ways  []way
	Away  []awayPart
	Stuck int // rows, messages and matches that need an operator
}

func (f *function) nowPage(r *http.Request) (any, error) {
	now, last := f.now(r.Context()), f.lastSample(r.Context())
	d := nowData{At: now.At, Away: now.Away}
	p := picture{now, last}
	d.Ways = []way{
		{"Purchases", []step{
			newStep("Gateway", well, rate(last.Changes)+" changes a second"),
			p.table("Outbox", "entitlement-outbox"), p.stream("entitlement.events"), p.table("Notifications", "notifications"),
			p.letters("Unread messages", "notification-letters"),
			newStep("Client", well, rate(last.Sent)+" sent a second", "p50 "+ms(last.SentP50MS)+", p99 "+ms(last.SentP99MS)),
		}},
		{"Matchmaking", append(p.players(), p.stream("matchmaking.events"))},
		{"Transfers", []step{
			p.transfers(), p.table("Outbox", "transfer-outbox"), p.stream("transfer.events"), p.letters("Unread messages", "settlement-letters"), p.stream("transfer.settled"), p.ledger(),
		}},
	}
	for _, t := range now.Tables {
		for _, s := range t.Rows {
			if s.Status == lease.Failed {
				d.Stuck += s.Rows
			}
		}
	}
	for _, l := range now.Letters {
		d.Stuck += l.Letters
	}
	for _, q := range now.Matchmaking {
		d.Stuck += q.Dead
	}
	return d, nil
}

// picture makes steps of what was read.
type picture struct {
	flow
	last Sample
}

func newStep(name, level string, facts ...string) step {
	return step{Name: name, Level: level, Facts: facts}
}

func (p picture) awayFrom(part string) bool {
	for _, a := range p.Away {
		if a.Part == part {
			return true
		}
	}
	return false
}

func (p picture) table(name, queue string) step {
	s := step{Name: name, Level: well, Link: "/console/queues/" + queue}
	if p.awayFrom(queue) {
		return step{Name: name, Level: gone, Facts: []string{"cannot be read"}, Link: s.Link}
	}
	for _, t := range p.Tables {
		if t.Queue != queue {
			continue
		}
		for _, row := range t.Rows {
			age := time.Duration(row.OldestMS) * time.Millisecond
			s.Facts = append(s.Facts, fmt.Sprintf("%s %s, oldest %s", count(row.Rows), row.Status, ms(row.OldestMS)))
			switch {
			case row.Status == lease.Failed:
				s.Level = failed
			case age > slowAfter && s.Level == well:
				s.Level = slow
			}
		}
	}
	if len(s.Facts) == 0 {
		s.Facts = []string{"nothing waits"}
	}
	return s
}

func (p picture) stream(subject string) step {
	s := step{Name: subject, Level: well, Facts: []string{"nothing waits"}}
	if p.awayFrom(subject) {
		s.Level, s.Facts = gone, []string{"cannot be read"}
	}
	for _, w := range p.Streams {
		if w.Subject == subject && w.Messages > 0 {
			s.Facts = []string{count(w.Messages) + " wait for " + w.Consumer}
		}
	}
	return s
}

func (p picture) letters(name, queue string) step {
	s := step{Name: name, Level: well, Facts: []string{"none"}, Link: "/console/queues/" + queue}
	if p.awayFrom(queue) {
		s.Level, s.Facts = gone, []string{"cannot be read"}
	}
	for _, l := range p.Letters {
		if l.Queue == queue && l.Letters > 0 {
			s.Level, s.Facts = failed, []string{count(l.Letters)}
		}
	}
	return s
}

func (p picture) players() (steps []step) {
	if p.awayFrom("matchmaking") {
		return []step{newStep("Queues", gone, "cannot be read")}
	}
	unannounced, dead := 0, 0
	for _, q := range p.Matchmaking {
		s := newStep("Queue "+q.Mode, well, strconv.Itoa(q.Waiting)+" wait")
		if q.Waiting > 0 {
			s.Facts = append(s.Facts, "oldest "+ms(q.OldestMS))
		}
		if q.RecentWaitMS > 0 {
			s.Facts = append(s.Facts, "matched after "+ms(q.RecentWaitMS))
		}
		steps = append(steps, s)
		unannounced, dead = unannounced+q.Unannounced, dead+q.Dead
	}
	made := newStep("Matches", well, strconv.Itoa(unannounced)+" not confirmed yet")
	if dead > 0 {
		made.Level, made.Facts = failed, append(made.Facts, strconv.Itoa(dead)+" could not be announced")
	}
	return append(steps, made)
}

func (p picture) transfers() step {
	if p.awayFrom("transfers") {
		return newStep("Transfers", gone, "cannot be read")
	}
	s := newStep("Transfers", well, rate(p.last.Transfers)+" a second", strconv.Itoa(p.Transfers.InProgress)+" in progress")
	if p.Transfers.InProgress > 0 {
		s.Facts = append(s.Facts, "oldest "+ms(p.Transfers.OldestMS))
	}
	if time.Duration(p.Transfers.OldestMS)*time.Millisecond > slowAfter {
		s.Level = slow
	}
	return s
}

func (p picture) ledger() step {
	if p.awayFrom("transfers") {
		return newStep("Ledger", gone, "cannot be read")
	}
	s := newStep("Ledger", well, "nothing waits")
	if p.Transfers.LedgerDue > 0 {
		s.Facts = []string{count(p.Transfers.LedgerDue) + " without entries, oldest " + ms(p.Transfers.DueMS)}
	}
	if time.Duration(p.Transfers.DueMS)*time.Millisecond > slowAfter {
		s.Level = slow
	}
	return s
}

// count writes a number that was counted up to a bound.
func count(n int) string {
	if n >= lease.MaxBacklog {
		return "100,000 or more"
	}
	return strconv.Itoa(n)
}

// ms writes a duration in ms as people read it, the unit beside its number.
func ms(n int64) string { return strings.ReplaceAll(duration(n), " ", "\u00a0") }

func duration(n int64) string {
	d := time.Duration(n) * time.Millisecond
	switch {
	case d < time.Second:
		return strconv.FormatInt(n, 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

func ago(t time.Time) string { return ms(max(time.Since(t), 0).Milliseconds()) + " ago" }

func rate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', 1, 64) }

// which says what a filter selects.
func which(f act.Filter) string {
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04") + " UTC"
	}
	var all []string
	for _, part := range [][2]string{
		{"", strings.Join(f.IDs, ", ")}, {"type ", f.EventType}, {"of ", f.Owner}, {"whose error contains ", f.ErrorContains}, {"failed from ", at(f.FailedFrom)}, {"failed before ", at(f.FailedBefore)},
	} {
		if part[1] != "" {
			all = append(all, part[0]+part[1])
		}
	}
	if len(all) == 0 {
		return "all"
	}
	return strings.Join(all, ", ")
}

// shown is a payload as people read it: indented if it is JSON.
func shown(payload string) string {
	var out bytes.Buffer
	if json.Indent(&out, []byte(payload), "", "  ") != nil {
		return strings.ToValidUTF8(payload, "�")
	}
	return out.String()
}
