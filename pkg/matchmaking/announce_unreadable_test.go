package matchmaking_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A match that cannot be read is set aside unchanged, once; all others are announced.
func TestUnreadableMatch(t *testing.T) {
	f := startAnnouncing(t)
	before := f.playMany("casual", 2)
	broken := map[string]string{
		"m_words": "what is this?", "m_empty": "", "m_time": strings.Repeat("x\n", 6) + "x", "m_lines": strings.Repeat("1\n", 12),
		"m_field": "e\n1", "m_bytes": "\xff\xfe\x00",
	}
	var fields []any
	for id, raw := range broken {
		fields = append(fields, id, raw)
	}
	// They stand beside valid matches, one of which must wait.
	games := f.playMany("casual", 2)
	entry := f.client.XRange(t.Context(), "mm:events:{casual}", games[0].entry, games[0].entry).Val()[0]
	for id, raw := range entry.Values {
		fields = append(fields, id, raw)
	}
	kit.Must(t, f.client.XDel(t.Context(), "mm:events:{casual}", games[0].entry).Err())
	kit.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: "mm:events:{casual}", Values: fields}).Err())
	after := f.play("casual")

	poor := games[0]
	f.servers.set(func(m matchmaking.Match) error {
		if m.ID == poor.id {
			return matchmaking.ErrNoServer
		}
		return nil
	})
	a := f.worker("a")
	if report := f.step(a); report != (lease.Report{Claimed: 11, Done: 4, Retried: 1, Dead: 6}) {
		t.Errorf("the step reported %+v, want Claimed: 11, Done: 4, Retried: 1, Dead: 6", report)
	}
	f.leasesEnd("casual")
	f.step(a)
	f.servers.set(nil)
	for range 3 { // the entry is written anew, without the matches set aside
		f.leasesEnd("casual")
		f.step(a)
	}
	for _, g := range append(append(before, games...), after) {
		f.isAnnounced(g)
	}
	dead := map[string]string{}
	for _, e := range f.client.XRange(t.Context(), "mm:dead:{casual}", "-", "+").Val() {
		for id, raw := range e.Values {
			if _, twice := dead[id]; twice {
				t.Errorf("%s was set aside twice", id)
			}
			dead[id] = raw.(string)
		}
	}
	for id, raw := range broken {
		if got, ok := dead[id]; !ok || got != raw {
			t.Errorf("%s was set aside: %v, as %q, want %q", id, ok, got, raw)
		}
	}
	if len(dead) != len(broken) || len(f.claimed("casual")) != 0 {
		t.Errorf("set aside are %v, want %d; still claimed are %v, want none", dead, len(broken), f.claimed("casual"))
	}
	for _, e := range f.client.XRange(t.Context(), "mm:events:{casual}", "-", "+").Val() {
		for id := range e.Values {
			if _, is := broken[id]; is {
				t.Errorf("%s was set aside and is still in the stream", id)
			}
		}
	}
}
