package matchmaking_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// Cancelling answers with the ticket's status, and changes only a ticket that waits.
func TestCancel(t *testing.T) {
	for _, mode := range []string{"casual", "rank", "regional"} {
		t.Run(mode, func(t *testing.T) {
			s := start(t)
			c := s.clock()
			ends := map[string]string{}
			ends[matchmaking.Expired] = s.join("u_a", mode, `{"skill":1}`)
			c.pass(3 * time.Minute)
			ends[matchmaking.Cancelled] = s.joinAs("u_a", mode, "k1", `{"skill":1}`)
			s.cancel("u_a", ends[matchmaking.Cancelled])
			ends[matchmaking.Matched] = s.joinAs("u_a", mode, "k2", `{"skill":1}`)
			s.join("u_b", mode, `{"skill":1}`)
			if pass := s.match(mode); len(pass.Matches) != 1 || pass.Depth != 0 {
				t.Fatalf("the pass did %+v, want 1 match and an empty queue", pass)
			}
			before := s.dump()
			for status, id := range ends {
				for range 2 {
					want := error(nil)
					if status == matchmaking.Matched {
						want = matchmaking.ErrMatched
					}
					if ticket, cancelled, err := s.Cancel(t.Context(), "u_a", id); !errors.Is(err, want) || cancelled || ticket.Status != status || ticket.ID != id {
						t.Errorf("cancelling a %s ticket answered %+v, cancelled %v, %v", status, ticket, cancelled, err)
					}
				}
				if ticket, cancelled, err := s.Cancel(t.Context(), "u_b", id); !errors.Is(err, matchmaking.ErrNotFound) || cancelled || ticket.ID != "" {
					t.Errorf("cancelling another user's %s ticket answered %+v, cancelled %v, %v", status, ticket, cancelled, err)
				}
			}
			if changed := s.changes(before); len(changed) > 0 {
				t.Errorf("cancelling what does not wait changed %v", changed)
			}
			waits := s.joinAs("u_a", mode, "k3", `{"skill":1}`)
			if _, _, err := s.Cancel(t.Context(), "u_b", waits); !errors.Is(err, matchmaking.ErrNotFound) {
				t.Errorf("cancelling another user's ticket that waits: %v, want ErrNotFound", err)
			}
			s.cancel("u_a", waits)
			s.joinAs("u_b", mode, "k4", `{"skill":1}`)
			if pass := s.match(mode); len(pass.Matches) != 0 || pass.Depth != 1 {
				t.Errorf("after the cancel the pass did %+v, want no match and 1 waiting", pass)
			}
			s.noLeftovers("due", "pool")
		})
	}
}

// An id that is no ticket of the caller is not found, whatever its form.
func TestTicketsThatAreNone(t *testing.T) {
	s := start(t)
	id := s.join("u_a", "casual", `{}`)
	number := id[len("casual_"):]
	for _, c := range []struct{ user, id string }{
		{"u_b", id},
		{"", id},
		{"U_A", id},
		{"u_a", ""},
		{"u_a", "x"},
		{"u_a", number},
		{"u_a", "casual_"},
		{"u_a", "casual_x"},
		{"u_a", "other_" + number},
		{"u_a", "rank_" + number},
		{"u_a", "Casual_" + number},
		{"u_a", id + "x"},
		{"u_a", id + "\n"},
		{"u_a", "casual_01h455vb4pex5vsknk084sn02q"},
		{"u_a", strings.Repeat("casual_", 1000)},
		{"u_a", "casual_\x00"},
		{"u_a", "{casual}_" + number},
		{"u_a", strings.ToUpper(id)},
	} {
		if ticket, err := s.Get(t.Context(), c.user, c.id); !errors.Is(err, matchmaking.ErrNotFound) {
			t.Errorf("%q reads %.40q: %+v, %v, want ErrNotFound", c.user, c.id, ticket, err)
		}
		if _, cancelled, err := s.Cancel(t.Context(), c.user, c.id); !errors.Is(err, matchmaking.ErrNotFound) || cancelled {
			t.Errorf("%q cancels %.40q: cancelled %v, %v, want ErrNotFound", c.user, c.id, cancelled, err)
		}
	}
	var unknown *fault.Error
	if _, _, err := s.try("u_a", "chess", "k", `{}`); !errors.As(err, &unknown) || unknown.Code != "mode_not_found" || unknown.Kind != fault.NotFound ||
		!strings.Contains(unknown.Detail, "casual, rank, regional") {
		t.Errorf("joining an unknown mode: %v, want mode_not_found with the modes", err)
	}
	if _, err := s.Match(t.Context(), "chess", 1); !errors.As(err, &unknown) || unknown.Code != "mode_not_found" {
		t.Errorf("matching an unknown mode: %v, want mode_not_found", err)
	}
	if got := s.get("u_a", id); got.Status != matchmaking.Queued {
		t.Errorf("in the end the ticket is %+v, want it QUEUED", got)
	}
}
