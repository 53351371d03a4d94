package matchmaking

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
)

// Join asks for a place in a queue.
type Join struct {
	UserID     string
	Mode       string
	Key        string // the caller's idempotency key, within user and mode
	Attributes Attributes
	// Traceparent is the W3C trace context of the request, or empty.
	Traceparent string
}

// Joined is the answer to a Join; a repeated Join gets the same one.
type Joined struct {
	TicketID  string    `json:"ticket_id" example:"casual_01h455vb4pex5vsknk084sn02q"`
	Status    string    `json:"status" enum:"QUEUED" doc:"The ticket's status when it was created."`
	ExpiresAt time.Time `json:"expires_at" doc:"When the ticket stops waiting."`
}

// Join puts a user into a queue. replayed reports that an earlier request with this
// key did so. Errors: ErrFull, idempotency.ErrReused, fault.Invalid for attributes,
// fault.NotFound (mode_not_found), fault.Conflict (ticket_queued) if the user already
// waits in this mode, and fault.Unavailable: then the ticket was made completely or not
// at all, and the same request finds out.
func (s *Store) Join(ctx context.Context, j Join) (joined Joined, replayed bool, err error) {
	mode, err := s.rules.mode(j.Mode)
	if err != nil {
		return Joined{}, false, err
	}
	skill := ""
	if mode.Ranked {
		if skill, err = j.Attributes.skill(); err != nil {
			return Joined{}, false, err
		}
	}
	fingerprint, err := idempotency.Fingerprint("join/"+mode.Name, "", []byte(j.Attributes.text))
	if err != nil {
		return Joined{}, false, err
	}
	ticketID := id.Text(mode.Name, id.New())
	random := ticketID[len(ticketID)-randomChars:]
	put, ask := mode.pools(j.Attributes)
	answer, err := s.run(ctx, joinScript, mode,
		[]string{
			key("idemp", mode.Name) + ":" + j.UserID + ":" + j.Key,
			activeKey(mode.Name, j.UserID),
		},
		random, j.UserID, j.Attributes.text, base64.RawStdEncoding.EncodeToString(fingerprint), s.rules.TTL.Milliseconds(), Kept.Milliseconds(),
		s.rules.QueueLimit, put, ask, skill, j.Traceparent, j.Key)
	if err != nil {
		return Joined{}, false, err
	}
	switch outcome := text(answer[0]); outcome {
	case "JOINED", "REPLAYED":
		return Joined{text(answer[1]), Queued, moment(number(answer[2]))}, outcome == "REPLAYED", nil
	case "REUSED":
		return Joined{}, false, idempotency.ErrReused
	case "WAITING":
		return Joined{}, false, fault.New(fault.Conflict, "ticket_queued",
			"You wait in this queue already, with ticket %s; read it, or cancel it and join again.", text(answer[1]))
	case "FULL":
		return Joined{}, false, ErrFull
	default:
		return Joined{}, false, fmt.Errorf("matchmaking: join answered %q", outcome)
	}
}

// randomChars is the length of the random end of a ticket's id: 62 bits, and the
// variant bits of a UUIDv7. join.lua puts Redis' time before it.
const randomChars = 13

func activeKey(mode, userID string) string { return key("active", mode) + ":" + userID }
