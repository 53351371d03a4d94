package matchmaking_test

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Each reason why a ticket is not matched yet is shown when it is true.
func TestReasons(t *testing.T) {
	s := start(t)
	c := s.clock()
	want := func(user, id, code, detail string) {
		t.Helper()
		if got := s.get(user, id).Reason; got.Code != code || !regexp.MustCompile(detail).MatchString(got.Detail) {
			t.Errorf("%s: %+v, want %s: %s", user, got, code, detail)
		}
	}
	a := s.join("u_a", "casual", `{}`)
	want("u_a", a, "alone", "^Nobody else waits")
	s.join("u_b", "casual", `{}`)
	want("u_a", a, "matcher_late", "late") // there was no pass yet
	s.match("casual")
	s.joinAs("u_a", "casual", "k", `{}`)
	casual := s.joinAs("u_b", "casual", "k", `{}`)
	want("u_b", casual, "next_pass", "next pass")
	c.pass(5 * time.Second)
	want("u_b", casual, "next_pass", "next pass")
	c.pass(time.Millisecond)
	want("u_b", casual, "matcher_late", "late")

	a = s.join("u_a", "rank", `{"skill":1000,"region":"eu"}`)
	want("u_a", a, "alone", "queue")
	b := s.join("u_b", "rank", `{"skill":1000,"region":"us"}`)
	s.match("rank")
	want("u_a", a, "nobody_agrees", "same region")
	want("u_b", b, "nobody_agrees", "same region")
	far := s.join("u_far", "rank", `{"skill":1500,"region":"eu"}`)
	s.match("rank")
	at := c.now().Add(5 * time.Second).Format(time.TimeOnly)
	want("u_far", far, "skill_window", "within 100 of .*; at "+at+" UTC you look as far as 200.$")
	c.pass(5 * time.Second)
	s.match("rank")
	c.pass(5 * time.Second)
	s.match("rank")
	want("u_far", far, "skill_window", "within 400 of your skill, or finds you within theirs.$") // the widest
	near := s.join("u_near", "rank", `{"skill":1400,"region":"eu"}`)
	want("u_near", near, "next_pass", "")
	want("u_far", far, "next_pass", "")
	want("u_b", b, "nobody_agrees", "")
	s.join("u_any", "rank", `{"skill":5000}`) // without a region it agrees with every region
	want("u_b", b, "skill_window", "")

	a = s.join("u_a", "regional", `{"region":"eu","language":"de"}`)
	s.join("u_b", "regional", `{"region":"eu","language":"fr"}`)
	want("u_a", a, "nobody_agrees", "same region and language.$")

	s.client.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			for i, argument := range cmd.Args() {
				if argument == matchmaking.MaxUnannounced {
					cmd.Args()[i] = 1 // the limit is one match
				}
			}
			return next(ctx, cmd)
		}
	}))
	want("u_b", casual, "paused", "paused")
	if pass := s.match("casual"); len(pass.Matches) != 0 || pass.Depth != 2 {
		t.Errorf("paused, a pass did %+v, want no match and 2 waiting", pass)
	}
	kit.Must(t, s.client.Del(t.Context(), "mm:events:{casual}").Err()) // all announced
	if pass := s.match("casual"); len(pass.Matches) != 1 {
		t.Errorf("no longer paused, a pass did %+v, want 1 match", pass)
	}
}

// Changed reports each change of a ticket's status or session, and nothing else.
func TestChanged(t *testing.T) {
	s := start(t)
	for _, mode := range s.Modes() {
		want := func(what string, want bool, read matchmaking.Ticket) {
			t.Helper()
			other := matchmaking.Ticket{ID: read.ID + "x", Mode: mode, Status: read.Status, ExpiresAt: read.ExpiresAt} // no such ticket
			if got, err := s.Changed(t.Context(), []matchmaking.Ticket{read, other, read}); err != nil || !slices.Equal(got, []bool{want, true, want}) {
				t.Errorf("%s, %s: changed %v, %v, want %v, true and %v", mode, what, got, err, want, want)
			}
		}
		a, b := "u_a"+mode, "u_b"+mode
		one, two := s.join(a, mode, `{"skill":1}`), s.join(b, mode, `{"skill":1}`)
		waiting := s.get(a, one)
		want("it waits", false, waiting)
		over := waiting
		over.ExpiresAt = time.Now()
		want("its time is over", true, over)
		s.match(mode)
		want("it is matched", true, waiting)
		matched := s.get(a, one)
		want("it is matched and has no session yet", false, matched)
		text := s.client.Get(t.Context(), ticketKey(one)).Val()
		for _, placed := range []string{"session {}", "session_error no_server"} {
			kit.Must(t, s.client.Set(t.Context(), ticketKey(one), text+placed+"\x00", time.Minute).Err())
			want("it has a "+placed, true, matched)
		}
		other := s.get(b, two)
		kit.Must(t, s.client.Del(t.Context(), ticketKey(two)).Err())
		want("it is gone", true, other)
		third := s.joinAs(a, mode, "another key", `{"skill":1}`)
		waiting = s.get(a, third)
		s.cancel(a, third)
		want("it is cancelled", true, waiting)
	}
	if got, err := s.Changed(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("for no tickets Changed returned %v, %v, want nothing", got, err)
	}
	many := slices.Repeat([]matchmaking.Ticket{{ID: "casual_1", Mode: "casual"}}, 1234)
	if got, err := s.Changed(t.Context(), many); err != nil || len(got) != len(many) {
		t.Errorf("for %d tickets Changed returned %d answers, %v", len(many), len(got), err)
	}
}
