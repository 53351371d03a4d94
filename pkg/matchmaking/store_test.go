package matchmaking_test

import (
	"testing"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// Two who join a plain queue meet, in the order in which they came.
func TestFirstComeFirstServed(t *testing.T) {
	s := start(t)
	a, b, c := s.join("u_a", "casual", `{}`), s.join("u_b", "casual", `{}`), s.join("u_c", "casual", `{}`)
	if got := s.get("u_c", c); got.Position != 3 || got.Reason.Code != "matcher_late" {
		t.Errorf("%+v %+v", got, got.Waiting)
	}
	pass := s.match("casual")
	if len(pass.Matches) != 1 || pass.Depth != 1 || pass.Expired != 0 {
		t.Fatalf("%+v", pass)
	}
	one, two, three := s.get("u_a", a), s.get("u_b", b), s.get("u_c", c)
	if one.Status != matchmaking.Matched || two.Status != matchmaking.Matched || one.MatchID != two.MatchID || one.MatchID != pass.Matches[0].ID ||
		one.PeerUserIDs[0] != "u_b" || two.PeerUserIDs[0] != "u_a" {
		t.Errorf("%+v %+v", one.Made, two.Made)
	}
	if three.Status != matchmaking.Queued || three.Position != 1 || three.Reason.Code != "alone" || three.EstimatedWaitMS == nil {
		t.Errorf("%+v %+v", three, three.Waiting)
	}
}

func TestRank(t *testing.T) {
	s := start(t)
	a := s.join("u_a", "rank", `{"skill":1000,"region":"eu"}`)
	b := s.join("u_b", "rank", `{"skill":1101,"region":"eu"}`)
	c := s.join("u_c", "rank", `{"skill":1000,"region":"us"}`)
	if pass := s.match("rank"); len(pass.Matches) != 0 || pass.Depth != 3 {
		t.Fatalf("%+v", pass)
	}
	t.Logf("%+v", s.get("u_a", a).Reason)
	t.Logf("%+v", s.get("u_c", c).Reason)
	d := s.join("u_d", "rank", `{"skill":1060}`)
	t.Logf("%+v", s.get("u_d", d).Reason)
	pass := s.match("rank")
	if len(pass.Matches) != 1 {
		t.Fatalf("%+v", pass)
	}
	t.Logf("%+v %+v", s.get("u_d", d).Made, s.get("u_b", b).Made)
}
