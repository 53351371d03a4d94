package matchmaking

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Limits of what can be configured, and of a pass.
const (
	// MaxAgree bounds the attributes of a mode that must agree: each doubles the
	// pools that a ticket is in.
	MaxAgree = 3
	// MaxWindows bounds the skill windows: each is one more pool to look into.
	MaxWindows = 8
	// MaxPairs bounds a pass, which blocks Redis for all other clients.
	MaxPairs = 100
	// maxUnannounced is how many matches may wait to be announced; with more, matching
	// pauses, so that Redis does not fill up.
	maxUnannounced = 1_000_000
)

// Rules is the configuration of all queues.
type Rules struct {
	Modes []Mode
	// TTL is how long a ticket waits.
	TTL time.Duration
	// Windows are the largest differences in skill, narrow to wide: a ticket has the
	// first when it joins and the next one after each WidenEvery.
	Windows    []int
	WidenEvery time.Duration
	// QueueLimit is how many tickets a queue holds at most.
	QueueLimit int
}

// Mode is one queue.
type Mode struct {
	Name   string // of letters a to z, 1 to 32 of them
	Ranked bool   // attributes.skill counts
	// Agree names attributes that must be equal where both tickets have them.
	Agree []string
}

// NewModes makes modes of settings: their names, those of them that are ranked,
// and, for some, the attributes that must agree (name -> "region+language").
func NewModes(names, ranked []string, agree map[string]string) ([]Mode, error) {
	var modes []Mode
	for _, name := range names {
		mode := Mode{Name: name, Ranked: slices.Contains(ranked, name)}
		if text := agree[name]; text != "" {
			mode.Agree = strings.Split(text, "+")
		}
		modes = append(modes, mode)
	}
	for _, name := range ranked {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%q is ranked and is no mode", name)
		}
	}
	for name := range agree {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%q has attributes that must agree and is no mode", name)
		}
	}
	return modes, nil
}

var modeName = regexp.MustCompile(`^[a-z]{1,32}$`)

// Check returns all faults of the rules in one line.
func (r Rules) Check() error {
	var bad []string
	want := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	want(len(r.Modes) > 0, "there is no mode")
	for i, m := range r.Modes {
		want(modeName.MatchString(m.Name), "a mode's name is 1 to 32 letters a to z, not %q", m.Name)
		want(!slices.ContainsFunc(r.Modes[:i], func(other Mode) bool { return other.Name == m.Name }), "mode %s is there twice", m.Name)
		want(len(m.Agree) <= MaxAgree, "at most %d attributes must agree, in %s it is %d", MaxAgree, m.Name, len(m.Agree))
		for j, name := range m.Agree {
			want(attributeName.MatchString(name), "%q is not the name of an attribute", name)
			want(!slices.Contains(m.Agree[:j], name), "attribute %q is there twice", name)
		}
	}
	want(r.TTL >= time.Second && r.TTL <= time.Hour, "a ticket waits 1s to 1h, not %s", r.TTL)
	want(len(r.Windows) >= 1 && len(r.Windows) <= MaxWindows, "there are 1 to %d skill windows, not %d", MaxWindows, len(r.Windows))
	for i, width := range r.Windows {
		want(width >= 0 && (i == 0 || width > r.Windows[i-1]), "skill windows go from narrow to wide, not %v", r.Windows)
	}
	want(r.WidenEvery >= 100*time.Millisecond, "a window widens after 100ms at least, not %s", r.WidenEvery)
	want(r.QueueLimit >= 2, "a queue holds 2 tickets at least, not %d", r.QueueLimit)
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

func (r Rules) names() []string {
	names := make([]string, len(r.Modes))
	for i, m := range r.Modes {
		names[i] = m.Name
	}
	return names
}

// mode returns a queue, or a fault.NotFound (mode_not_found).
func (r Rules) mode(name string) (Mode, error) {
	for _, m := range r.Modes {
		if m.Name == name {
			return m, nil
		}
	}
	return Mode{}, fault.New(fault.NotFound, "mode_not_found", "There is no such mode; the modes are %s.", strings.Join(r.names(), ", "))
}

// plain queues are first come, first served.
func (m Mode) plain() bool { return !m.Ranked && len(m.Agree) == 0 }

// windows returns a mode's windows as the scripts take them.
func (r Rules) windows(m Mode) string {
	if !m.Ranked {
		return ""
	}
	widths := make([]string, len(r.Windows))
	for i, width := range r.Windows {
		widths[i] = strconv.Itoa(width)
	}
	return strings.Join(widths, ",")
}

// pools returns the pools that a ticket is put into, and those in which it looks for a
// partner.
//
// Attributes must be equal where both tickets have them, so a ticket without one agrees
// with every value: that is no partition of the queue. A pool is named by its members'
// relation to a kind of asker: for each attribute, that both have it and with which
// value, that only the member has it, only the asker, or neither. A ticket is put into
// the pools for all kinds of askers, and looks in the pools of all kinds of members for
// its own kind; so it finds exactly the tickets that it agrees with.
func (m Mode) pools(a Attributes) (put, ask string) {
	if m.plain() {
		return "", ""
	}
	if len(m.Agree) == 0 {
		return "all", "all"
	}
	var puts, asks []string
	for others := range 1 << len(m.Agree) {
		var asMember, asAsker []string
		for i, name := range m.Agree {
			value, named := a.value(name)
			otherNamed := others>>i&1 == 1
			asMember = append(asMember, name+side(named, otherNamed, value))
			asAsker = append(asAsker, name+side(otherNamed, named, value))
		}
		puts = append(puts, strings.Join(asMember, "&"))
		asks = append(asks, strings.Join(asAsker, "&"))
	}
	return strings.Join(puts, "\t"), strings.Join(asks, "\t")
}

// side describes one attribute in a pool's name. The value is JSON, which has no
// tab.
func side(member, asker bool, value string) string {
	switch {
	case member && asker:
		return "=" + value
	case member:
		return ":member"
	case asker:
		return ":asker"
	}
	return ":neither"
}
