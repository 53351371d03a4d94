// Package matchmaking pairs players, two at a time. A player joins a queue and
// gets a ticket; a pass takes two tickets that fit and makes a match of them. All
// state is in Redis. Join, cancel and a pass are one Lua script each (the .lua
// files here, with their arguments), so that nothing can come between: a ticket is
// in at most one match, and one that was cancelled is in none. The script that
// makes a match writes its event, too, to a stream from which an Announcer carries
// it on, so that a match is told whatever happens to the process that made it.
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
	// CancelledKept is how long a ticket can be read, and its join be sent again, after
	// it was cancelled: long enough for a retry, and short, since nothing but the quota
	// of joining bounds how many a player leaves behind.
	CancelledKept = time.Minute
)

// Ticket is a player's place in a queue, and what became of it.
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

// Waiting is what a ticket has while it is QUEUED.
type Waiting struct {
	Position        int    `json:"position" required:"false" doc:"Its place in the queue by waiting time; 1 is first." example:"1"`
	EstimatedWaitMS *int64 `json:"estimated_wait_ms" required:"false" doc:"How long those who were matched lately had waited, on average, in ms; null when nobody was in the last 10 minutes." example:"4200"`
	Reason          Reason `json:"reason" required:"false" doc:"Why it is not matched yet." example:"{\"code\":\"alone\",\"detail\":\"Nobody else waits in this queue.\"}"`
}

// Made is what a ticket has once it is MATCHED.
type Made struct {
	MatchID      string    `json:"match_id" required:"false" doc:"Names the match."`
	MatchedAt    time.Time `json:"matched_at" required:"false"`
	PeerUserIDs  []string  `json:"peer_user_ids" required:"false" nullable:"false" doc:"Whom it is matched with."`
	Session      *Session  `json:"session" required:"false" doc:"Where they meet; null while a game server is being found, and for good when session_error says why there is none."`
	SessionError string    `json:"session_error,omitempty" doc:"no_server: none was free in time. Join again."`
}

// Errors that callers are told, beside those that Join has.
var (
	ErrNotFound = fault.New(fault.NotFound, "ticket_not_found", "You have no such ticket, or it is not kept any more: 5 minutes after it would have expired, 1 after it was cancelled. Join again.")
	ErrMatched  = fault.New(fault.Conflict, "ticket_matched", "The ticket is matched already and stays so; read it for the match.")
	ErrFull     = &fault.Error{Kind: fault.Unavailable, Code: "queue_full", RetryAfter: fault.DefaultRetryAfter,
		Detail: "Too many wait in this queue; send the same request again later."}
)

// unreachable says that Redis did not answer. The script may have run all the
// same; what a caller sends again finds that out.
func unreachable(err error) error { return fault.Unreachable("Matchmaking", err) }

// Store reads and changes tickets and queues.
type Store struct {
	client redis.UniversalClient
	rules  Rules
	// Observe, when set before the first call, is told how long each script took,
	// with its way to Redis and back, and its error.
	Observe func(script string, took time.Duration, err error)
	// planted returns a script with a fault, for tests that must notice it.
	planted func(name string) *redis.Script
}

// NewStore returns a store on client, which should not send commands again by
// itself: a pass that runs twice is harmless, but nobody is told of the first.
func NewStore(client redis.UniversalClient, rules Rules) *Store {
	return &Store{client: client, rules: rules}
}

// Modes are the names of the queues.
func (s *Store) Modes() []string { return s.rules.names() }
