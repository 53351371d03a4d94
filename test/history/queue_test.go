package history_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/anishathalye/porcupine"
)

const (
	players  = 3  // of a history
	requests = 24 // to join, of a history at most
)

// turn asks for something about one request to join, or for a pass of match.
type turn struct {
	does    string // "join", "read", "cancel" or "pass"
	request int    // which request; those of one player are players apart
}

// told is the answer to a turn.
type told struct {
	status   int
	now      string // the ticket's status
	ticket   string // its id
	replayed bool
	position int    // of a waiting ticket
	matchID  string // of a matched one
	peer     int    // the other player of the match
	detail   string // of a refusal
	done     int    // tickets that a pass matched
}

// place is a request to join, and its ticket.
type place struct {
	now     string // "" while there is no ticket
	ticket  string // "" while no answer has told its id
	joined  int    // 1 for the first ticket, 2 for the next
	partner int    // of a match: the other request
	matchID string // "" while no answer has told it
}

// queue is the state of a queue without rules: the first to join are matched first.
type queue struct {
	places [requests]place
	joined int
}

// queueModel says what the queue may answer. A pass is about all tickets, so all are judged
// together. Nothing but a pass makes a match, and it leaves one ticket at most.
var queueModel = porcupine.Model{
	Init:              func() any { return queue{} },
	Step:              func(state, input, output any) (bool, any) { return state.(queue).step(input.(turn), output) },
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

func (q queue) step(in turn, output any) (allowed bool, next queue) {
	out, answered := output.(told)
	switch in.does {
	case "pass":
		allowed = q.pass() == out.done
	case "join":
		allowed = q.join(in.request, out, answered)
	case "cancel":
		allowed = q.cancel(in.request, out)
	case "read":
		allowed = answered && q.read(in.request, out)
	}
	return allowed || !answered, q
}

// waiting returns the requests whose tickets wait, in the order of joining.
func (q *queue) waiting() (list []int) {
	for nth := 1; nth <= q.joined; nth++ {
		for i, p := range q.places {
			if p.joined == nth && p.now == "QUEUED" {
				list = append(list, i)
			}
		}
	}
	return list
}

func (q *queue) pass() (done int) {
	list := q.waiting()
	for ; done+1 < len(list); done += 2 {
		one, two := list[done], list[done+1]
		q.places[one].now, q.places[one].partner = "MATCHED", two
		q.places[two].now, q.places[two].partner = "MATCHED", one
	}
	return done
}

func (q *queue) join(request int, out told, answered bool) bool {
	p := &q.places[request]
	fresh := p.now == ""
	if fresh {
		for _, other := range q.waiting() {
			if other%players == request%players { // a player waits with one ticket
				return out.status == http.StatusConflict && strings.Contains(out.detail, q.places[other].ticket)
			}
		}
		q.joined++
		p.now, p.joined = "QUEUED", q.joined
	}
	if !answered {
		return true
	}
	for i, other := range q.places {
		if i != request && other.ticket == out.ticket {
			return false
		}
	}
	if p.ticket == "" { // the first request was not answered: its retry tells
		p.ticket = out.ticket
	}
	return out.status == http.StatusCreated && out.replayed == !fresh && out.ticket == p.ticket
}

func (q *queue) cancel(request int, out told) bool {
	p := &q.places[request]
	if p.now == "MATCHED" {
		return out.status == http.StatusConflict
	}
	p.now = "CANCELLED"
	return out.status == http.StatusOK && out.now == p.now
}

func (q *queue) read(request int, out told) bool {
	p := &q.places[request]
	if out.status != http.StatusOK || out.now != p.now {
		return false
	}
	switch p.now {
	case "QUEUED":
		list := q.waiting()
		return out.position >= 1 && out.position <= len(list) && list[out.position-1] == request
	case "MATCHED":
		for i, other := range q.places {
			if i != request && i != p.partner && other.matchID == out.matchID {
				return false
			}
		}
		if p.matchID == "" { // both players are told the same match
			p.matchID, q.places[p.partner].matchID = out.matchID, out.matchID
		}
		return out.matchID == p.matchID && out.peer == p.partner%players
	}
	return out.matchID == ""
}
