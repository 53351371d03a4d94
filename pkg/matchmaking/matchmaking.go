// Package matchmaking pairs players, two at a time. A player joins a queue and gets a
// ticket; a pass turns two compatible tickets into a match. All state is in Redis. Join,
// cancel and a pass are one Lua script each (the .lua files here, with their arguments),
// so that nothing happens in between: a ticket is in at most one match, and a cancelled
// one in none. The script that makes a match also writes its event to a stream, from
// which an Announcer publishes it, so a match is announced even if the process that made
// it dies.
//
// Each queue, a mode, is one hash slot of a Redis Cluster.
package matchmaking

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Statuses of a ticket; see docs/architecture.md for the diagram.
const (
	Queued    = "QUEUED"
	Matched   = "MATCHED"
	Cancelled = "CANCELLED"
	Expired   = "EXPIRED"
)

const (
	// Kept is how long a ticket can be read after it expired.
	Kept = 5 * time.Minute
	// CancelledKept is how long a cancelled ticket can be read and its join be retried.
	// It is short, since only the quota of joins bounds the cancelled tickets of a
	// player.
	CancelledKept = time.Minute
)

// Ticket is a player's place in a queue, and its outcome.
type Ticket struct {
	ID         string         `json:"ticket_id" example:"casual_01h455vb4pex5vsknk084sn02q"`
	Mode       string         `json:"mode" example:"casual"`
	Status     string         `json:"status" enum:"QUEUED,MATCHED,CANCELLED,EXPIRED"`
	CreatedAt  time.Time      `json:"created_at"`
	ExpiresAt  time.Time      `json:"expires_at" doc:"When it stops waiting."`
	Attributes map[string]any `json:"attributes" doc:"As they were sent: numbers and strings." example:"{\"region\":\"eu\",\"skill\":1500}"`
	*Waiting
	*Made
}

// Waiting has the fields of a QUEUED ticket.
type Waiting struct {
	Position        int    `json:"position" required:"false" doc:"Its place in the queue by waiting time; 1 is first." example:"1"`
	EstimatedWaitMS *int64 `json:"estimated_wait_ms" required:"false" doc:"How long recently matched players waited, on average, in ms; null when nobody was matched in the last 10 minutes." example:"4200"`
	Reason          Reason `json:"reason" required:"false" doc:"Why it is not matched yet." example:"{\"code\":\"alone\",\"detail\":\"Nobody else waits in this queue.\"}"`
}

// Made has the fields of a MATCHED ticket.
type Made struct {
	MatchID      string    `json:"match_id" required:"false" doc:"Names the match."`
	MatchedAt    time.Time `json:"matched_at" required:"false"`
	PeerUserIDs  []string  `json:"peer_user_ids" required:"false" nullable:"false" doc:"The other players of the match."`
	Session      *Session  `json:"session" required:"false" doc:"The game server; null until one is allocated, and for good if session_error says why there is none."`
	SessionError string    `json:"session_error,omitempty" doc:"no_server: no game server was free in time. Join again."`
}

// Errors for callers, besides those of Join.
var (
	ErrNotFound = fault.New(fault.NotFound, "ticket_not_found", "You have no such ticket, or it is no longer kept: 5 minutes after it would have expired, 1 minute after it was cancelled. Join again.")
	ErrMatched  = fault.New(fault.Conflict, "ticket_matched", "The ticket is matched already and stays so; read it for the match.")
	ErrFull     = &fault.Error{
		Kind: fault.Unavailable, Code: "queue_full", RetryAfter: fault.DefaultRetryAfter,
		Detail: "Too many wait in this queue; send the same request again later.",
	}
)

// unreachable is the error for Redis that did not answer. The script may have run all
// the same; the caller's retry finds that out.
func unreachable(err error) error { return fault.Unreachable("Matchmaking", err) }

// Store reads and changes tickets and queues.
type Store struct {
	client redis.UniversalClient
	rules  Rules
	// Observe, if set before the first call, receives the duration of each script,
	// including the round trip, and its error.
	Observe func(script string, took time.Duration, err error)
	// planted returns a faulty script, for tests that must notice the fault.
	planted func(name string) *redis.Script
}

// NewStore returns a store on client, which should not retry commands by itself: a
// pass that runs twice is harmless, but the report of the first run is lost.
func NewStore(client redis.UniversalClient, rules Rules) *Store {
	return &Store{client: client, rules: rules}
}

// Modes are the names of the queues.
func (s *Store) Modes() []string { return s.rules.names() }
