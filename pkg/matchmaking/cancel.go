package matchmaking

import "context"

// Cancel takes a user's ticket out of its queue and returns it; the ticket and its key
// stay for CancelledKept. A ticket that is cancelled or expired already stays as it is,
// without an error; cancelled reports whether this call cancelled it. Errors: ErrNotFound,
// ErrMatched, fault.Unavailable.
func (s *Store) Cancel(ctx context.Context, userID, ticketID string) (ticket Ticket, cancelled bool, err error) {
	mode, err := s.modeOf(ticketID)
	if err != nil {
		return Ticket{}, false, err
	}
	answer, err := s.run(ctx, cancelScript, mode, []string{ticketKey(mode.Name, ticketID), activeKey(mode.Name, userID)},
		ticketID, userID, CancelledKept.Milliseconds())
	if err != nil {
		return Ticket{}, false, err
	}
	outcome := text(answer[0])
	if outcome == "GONE" {
		return Ticket{}, false, ErrNotFound
	}
	ticket, err = s.Get(ctx, userID, ticketID)
	if err == nil && ticket.Status == Matched {
		err = ErrMatched
	}
	return ticket, outcome == "CANCELLED", err
}
