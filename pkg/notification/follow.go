package notification

import (
	"context"
	"time"

	"github.com/miniserversystem/miniserver/pkg/cursor"
)

// Follower reads the SENT notifications of one user, each once and without a gap,
// whatever the order in which they become visible. It works in looks: a look reads
// everything from a point before which nothing can appear any more (Overlap before the
// previous look) up to its own beginning, page by page. It is for one goroutine.
type Follower struct {
	store  *Store
	userID string

	from time.Time // where a look begins: everything before was returned
	next time.Time // where the next page begins
	look time.Time // when the look began, by the database's clock; zero between looks
	// seen has the returned notifications that will be read again, with their SentAt.
	seen map[string]time.Time
}

// Follow returns a follower of the notifications sent to userID after a time by the
// database's clock. A reader that resumes passes its last SentAt less Overlap, and may
// get the notifications of that time again.
func (s *Store) Follow(userID string, after time.Time) *Follower {
	return &Follower{store: s, userID: userID, from: after, next: after, seen: map[string]time.Time{}}
}

// Next returns new notifications, in the order of Since and with its limit. more means
// that there is probably more to read at once; otherwise call again when there may be
// news. After an error, call again.
func (f *Follower) Next(ctx context.Context, limit int) (fresh []Notification, more bool, err error) {
	page, at, err := f.store.since(ctx, f.userID, f.next, limit)
	if err != nil {
		return nil, false, err
	}
	if f.look.IsZero() {
		f.look = at
	}
	more = len(page) >= cursor.Limit(limit)
	for _, n := range page {
		// The next look returns it. A reader that resumes relies on that: when it saw n,
		// it saw everything that is older than n by Overlap.
		if n.SentAt.After(f.look) {
			more = false
			break
		}
		f.next = *n.SentAt
		if _, known := f.seen[n.ID]; !known {
			fresh = append(fresh, n)
		}
		if n.SentAt.After(f.look.Add(-Overlap)) {
			f.seen[n.ID] = *n.SentAt
		}
	}
	if !more {
		f.endLook()
	}
	return fresh, more, nil
}

func (f *Follower) endLook() {
	if settled := f.look.Add(-Overlap); settled.After(f.from) {
		f.from = settled
	}
	f.next, f.look = f.from, time.Time{}
	for id, sentAt := range f.seen {
		if !sentAt.After(f.from) {
			delete(f.seen, id)
		}
	}
}
