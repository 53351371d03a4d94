package notification

import (
	"encoding/json"
	"fmt"

	"github.com/miniserversystem/miniserver/pkg/event"
)

// notice is one recipient and their view of an event.
type notice struct {
	userID  string
	payload []byte
	// of is what they are told of, if another event may tell them of it once more; "" is the
	// event.
	of string
}

// notices returns an event's recipients, with their views. Its error wraps
// event.ErrUnreadable.
func notices(r event.Record) ([]notice, error) {
	switch r.Type {
	case "MatchMade":
		return matchNotices(r)
	case "TransferSettled":
		return transferNotices(r)
	}
	var about struct {
		UserID string `json:"user_id"`
	}
	if err := json.Unmarshal(r.Payload, &about); err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrUnreadable, err)
	}
	if about.UserID == "" {
		return nil, fmt.Errorf("%w: it names no recipient", event.ErrUnreadable)
	}
	return []notice{{userID: about.UserID, payload: r.Payload}}, nil
}

// match has the fields of a match's event.
type match struct {
	EventID    string `json:"event_id"`
	EventType  string `json:"event_type"`
	OccurredAt string `json:"occurred_at"`
	MatchID    string `json:"match_id"`
	Mode       string `json:"mode"`
	Players    []struct {
		UserID   string `json:"user_id"`
		TicketID string `json:"ticket_id"`
	} `json:"players,omitempty"`
	Session      json.RawMessage `json:"session"`
	SessionError string          `json:"session_error,omitempty"`
}

// matchView is a player's view of a match: themselves and the others.
type matchView struct {
	match
	UserID      string   `json:"user_id"`
	TicketID    string   `json:"ticket_id"`
	PeerUserIDs []string `json:"peer_user_ids"`
}

// matchNotices returns each player's own view of a match.
func matchNotices(r event.Record) ([]notice, error) {
	var m match
	if err := json.Unmarshal(r.Payload, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrUnreadable, err)
	}
	players := m.Players
	m.Players = nil
	list := make([]notice, 0, len(players))
	for i, player := range players {
		view := matchView{match: m, UserID: player.UserID, TicketID: player.TicketID, PeerUserIDs: []string{}}
		for j, other := range players {
			if j != i {
				view.PeerUserIDs = append(view.PeerUserIDs, other.UserID)
			}
			if j != i && other.UserID == player.UserID {
				return nil, fmt.Errorf("%w: a player is matched with themselves", event.ErrUnreadable)
			}
		}
		if player.UserID == "" {
			return nil, fmt.Errorf("%w: a player without an id", event.ErrUnreadable)
		}
		payload, err := json.Marshal(view)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", event.ErrUnreadable, err)
		}
		list = append(list, notice{userID: player.UserID, payload: payload})
	}
	if len(list) < 2 {
		return nil, fmt.Errorf("%w: a match of %d", event.ErrUnreadable, len(list))
	}
	return list, nil
}

// settled has the fields of a transfer's event.
type settled struct {
	EventID     string `json:"event_id"`
	EventType   string `json:"event_type"`
	OccurredAt  string `json:"occurred_at"`
	TransferID  string `json:"transfer_id"`
	Kind        string `json:"kind"`
	Currency    string `json:"currency"`
	Amount      string `json:"amount"`
	FromAccount int64  `json:"from_account_id"`
	FromUser    string `json:"from_user_id"`
	ToAccount   int64  `json:"to_account_id"`
	ToUser      string `json:"to_user_id"`
}

// transferView is an owner's view of a transfer.
type transferView struct {
	settled
	UserID    string `json:"user_id"`
	Direction string `json:"direction"` // SENT, RECEIVED, or MOVED between their own accounts
}

// transferNotices returns the views of both accounts' owners; the system's account has
// no owner.
func transferNotices(r event.Record) ([]notice, error) {
	var s settled
	if err := json.Unmarshal(r.Payload, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrUnreadable, err)
	}
	views := []transferView{{s, s.FromUser, "SENT"}, {s, s.ToUser, "RECEIVED"}}
	if s.FromUser == s.ToUser {
		views = []transferView{{s, s.ToUser, "MOVED"}}
	}
	var list []notice
	for _, view := range views {
		if view.UserID == "" {
			continue
		}
		payload, err := json.Marshal(view)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", event.ErrUnreadable, err)
		}
		// A transfer that is settled again, because that was lost, has a new event.
		list = append(list, notice{view.UserID, payload, s.TransferID})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: it names no recipient", event.ErrUnreadable)
	}
	return list, nil
}
