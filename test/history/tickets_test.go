package history_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/miniserversystem/miniserver/test/system"
)

// lobby is where the players of a history wait.
type lobby struct {
	tokens, users [players]string
	passing       sync.Mutex // passes that meet become one

	mutex   sync.Mutex
	sent    int              // requests 0 to sent-1 were sent
	tickets [requests]string // ids, as soon as they are known
	lost    [requests]bool   // an answer was lost
}

func newLobby(s *system.System, people *system.People, seed uint64) *lobby {
	l := &lobby{}
	for i := range l.tokens {
		l.tokens[i] = people.Player(s.T, fmt.Sprintf("player%d-%d", seed, i))
		l.users[i] = s.UserID(l.tokens[i])
	}
	return l
}

// next chooses a turn at random.
func (l *lobby) next(c *client) turn {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	kind, which := c.random.IntN(10), c.random.IntN(requests)
	switch {
	case kind < 2:
		return turn{does: "pass"}
	case l.sent == 0 || kind < 5 && l.sent < requests:
		l.sent++
		return turn{"join", l.sent - 1}
	}
	in := turn{"join", which % l.sent}
	if kind > 5 && l.tickets[in.request] != "" {
		in.does = []string{"read", "read", "cancel"}[which%3]
	}
	return in
}

// take sends a turn.
func (c *client) take(l *lobby, in turn) {
	if in.does == "pass" {
		l.passing.Lock()
		defer l.passing.Unlock()
	}
	c.observe(in, func() any {
		if in.does == "pass" {
			report, failed := c.s.Try("match")
			if failed != "" {
				return nil
			}
			return told{done: report.Done}
		}
		var a system.Answer
		var known bool
		l.mutex.Lock()
		token, id := l.tokens[in.request%players], l.tickets[in.request]
		l.mutex.Unlock()
		switch in.does {
		case "join":
			a, known = c.ask(http.MethodPost, system.JoinPath("casual"), token, fmt.Sprintf(`{"idempotency_key":"k%d"}`, in.request))
		case "read":
			a, known = c.ask(http.MethodGet, system.TicketPath(id), token, "")
		case "cancel":
			a, known = c.ask(http.MethodDelete, system.TicketPath(id), token, "")
		}
		if !known {
			l.mutex.Lock()
			l.lost[in.request] = true
			l.mutex.Unlock()
			return nil
		}
		return l.told(c, in, a)
	})
}

// told reads an answer.
func (l *lobby) told(c *client, in turn, a system.Answer) told {
	out := told{
		status: a.Status, now: a.Text("status"), ticket: a.Text("ticket_id"), matchID: a.Text("match_id"), detail: a.Text("detail"),
		replayed: a.Header.Get("Idempotent-Replayed") == "true", peer: -1,
	}
	fields := a.JSON(c.s.T)
	position, _ := fields["position"].(float64)
	out.position = int(position)
	if peers, _ := fields["peer_user_ids"].([]any); len(peers) == 1 {
		out.peer = slices.Index(l.users[:], fmt.Sprint(peers[0]))
	}
	if in.does == "join" && a.Status == http.StatusCreated {
		l.mutex.Lock()
		l.tickets[in.request] = out.ticket
		l.mutex.Unlock()
	}
	return out
}

// leave ends all tickets, so that the next history finds an empty queue. A request whose
// answer was lost may still come: it is repeated until it has its ticket, and then adds
// none. Another one's ticket may be in its way, which the next round has cancelled.
func (l *lobby) leave(c *client) {
	left := [requests]bool{}
	for range requests {
		waits := false
		for i := range l.sent {
			if l.tickets[i] == "" && l.lost[i] {
				c.take(l, turn{"join", i})
			}
			if l.tickets[i] != "" && !left[i] {
				left[i] = true
				c.take(l, turn{"cancel", i})
			}
			waits = waits || l.tickets[i] == "" && l.lost[i]
		}
		if !waits {
			break
		}
	}
	for i := range l.sent {
		if l.tickets[i] != "" {
			c.take(l, turn{"read", i})
		}
	}
}

// Joins, cancels and reads of several clients, with repeated keys, and passes happen as if
// one came after the other: a key has one ticket, the first to join are matched first, both
// players see one match, and neither a cancelled ticket is matched nor a matched one
// cancelled.
func TestTicketsAreInOrder(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	var all []porcupine.Operation
	for _, seed := range seeds(t) {
		r, l := newRecord(s, seed), newLobby(s, people, seed)
		r.all(func(c *client) {
			for range each {
				c.take(l, l.next(c))
			}
		})
		l.leave(r.client(clients))
		r.judge(t, queueModel)
		all = append(all, r.history...)
	}
	shows(t, all, "ticket seen matched", func(in turn, out told) bool { return in.does == "read" && out.now == "MATCHED" })
	shows(t, all, "cancelled ticket", func(in turn, out told) bool { return in.does == "cancel" && out.now == "CANCELLED" })
	shows(t, all, "cancel that comes too late", func(in turn, out told) bool { return in.does == "cancel" && out.status == http.StatusConflict })
	shows(t, all, "repeated join", func(in turn, out told) bool { return in.does == "join" && out.replayed })
}

// One client's turns are answered as the model says.
func TestTicketsInTurn(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	inTurn(t, s, queueModel, func(c *client, requests int) {
		l := newLobby(s, people, c.seed)
		for range requests {
			c.take(l, l.next(c))
		}
		l.leave(c)
	})
}

// The model of a queue sees what it is there to see.
func TestQueueModelNotices(t *testing.T) {
	t.Parallel()
	joined := func(request int, ticket string) step {
		return step{turn{"join", request}, told{status: http.StatusCreated, now: "QUEUED", ticket: ticket}}
	}
	again := func(request int, ticket string) step {
		return step{turn{"join", request}, told{status: http.StatusCreated, now: "QUEUED", ticket: ticket, replayed: true}}
	}
	refused := func(does string, request int, detail string) step {
		return step{turn{does, request}, told{status: http.StatusConflict, detail: detail}}
	}
	cancelled := func(does string, request int) step {
		return step{turn{does, request}, told{status: http.StatusOK, now: "CANCELLED"}}
	}
	queued := func(request, position int) step {
		return step{turn{"read", request}, told{status: http.StatusOK, now: "QUEUED", position: position}}
	}
	matched := func(request, peer int, matchID string) step {
		return step{turn{"read", request}, told{status: http.StatusOK, now: "MATCHED", matchID: matchID, peer: peer}}
	}
	pass := func(done int) step { return step{turn{does: "pass"}, told{done: done}} }
	a, b, c := joined(0, "a"), joined(1, "b"), joined(2, "c")
	notices(t, queueModel, []step{
		a, again(0, "a"), refused("join", 3, "you wait with a"), b, queued(1, 2), c, pass(2), matched(0, 1, "m1"), matched(1, 0, "m1"), queued(2, 1),
		refused("cancel", 0, ""), joined(3, "d"), cancelled("cancel", 3), cancelled("read", 3), again(3, "d"), pass(0),
		{turn{"join", 6}, nil},
		again(6, "e"), pass(2), matched(6, 2, "m2"), matched(2, 0, "m2"),
	}, map[string][]step{
		"a key with two tickets":                     {a, again(0, "b")},
		"a ticket that is made twice":                {a, joined(0, "a")},
		"two requests with one ticket":               {a, joined(1, "a")},
		"a replay of what never was":                 {again(0, "a")},
		"a player who waits twice":                   {a, joined(3, "d")},
		"a refusal of a player who does not wait":    {refused("join", 0, "you wait with a")},
		"a cancelled ticket that matches":            {a, b, cancelled("cancel", 0), pass(2)},
		"a cancelled ticket that is read as matched": {a, b, cancelled("cancel", 0), pass(0), matched(0, 1, "m1")},
		"a cancelled ticket that waits":              {a, cancelled("cancel", 0), queued(0, 1)},
		"a matched ticket that is cancelled":         {a, b, pass(2), cancelled("cancel", 0)},
		"a matched ticket that waits":                {a, b, pass(2), queued(0, 1)},
		"a waiting ticket that cannot be cancelled":  {a, refused("cancel", 0, "")},
		"a match without a pass":                     {a, b, matched(0, 1, "m1")},
		"a pass that misses a pair":                  {a, b, pass(0)},
		"a match that two players see differently":   {a, b, pass(2), matched(0, 1, "m1"), matched(1, 0, "m2")},
		"a match with oneself":                       {a, b, pass(2), matched(0, 0, "m1")},
		"a match of three":                           {a, b, c, pass(2), matched(0, 1, "m1"), matched(2, 0, "m1")},
		"the last to join before the first":          {a, b, c, pass(2), queued(0, 1)},
		"a wrong place in the queue":                 {a, b, queued(1, 1)},
		"a ticket that vanishes":                     {a, {turn{"read", 0}, told{status: http.StatusNotFound}}},
	})
}
