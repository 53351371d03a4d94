// Package session keeps the sign-ins of browsers in Redis (7 or later, alone or as a
// cluster). The browser holds only a cookie value of 32 random bytes. The key under which
// its session is stored and the key that encrypts it (AES-256-GCM) are both derived from
// that value, so Redis alone opens nothing: a dump contains no usable cookie, no token and
// no user. It does not protect against an attacker who can write to Redis and has a cookie
// value of their own.
//
// Every command and script touches one key:
//
//	session:{id}           string: the sealed Session; lives for the idle limit
//	session:renewing:{id}  string: the process that renews it now
//	session:sid:{hash}     sorted set: ids of the sessions of one issuer and SID, by when they end
//	session:subject:{hash} sorted set: the same of one issuer and subject
//	session:ended:{hash}   string: a sign-out of this issuer and SID within the last minute
//	session:once:{hash}    string: a logout token that was used
//	session:login:{hash}   string: the sealed Login of a sign-in in progress
//
// Redis should not evict (maxmemory-policy noeviction), and the client must read
// from the masters, or ended sessions may reappear. Redis' failures are
// fault.Unavailable; the client's timeouts decide how long they take.
package session

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/cache"
	"github.com/miniserversystem/miniserver/pkg/fault"
)

// ErrNone is the error for a cookie that opens no session: malformed, unknown, expired,
// signed out or tampered with.
var ErrNone = fault.New(fault.Unauthenticated, "session_missing", "There is no session, or it has ended; sign in again at /login.")

// Limits bound the life of a session; both are above zero.
type Limits struct {
	Idle     time.Duration // since it was last loaded, to a tenth
	Absolute time.Duration // since it was created
}

// Session describes a browser that signed in.
type Session struct {
	UserID    string    `json:"user_id"`
	Issuer    string    `json:"issuer"`
	Subject   string    `json:"subject"` // the user at the issuer
	Client    string    `json:"client"`  // our client at the issuer
	SID       string    `json:"sid"`     // the issuer's own session; "" when it names none
	Roles     []string  `json:"roles"`
	AuthTime  time.Time `json:"auth_time"` // when the person last authenticated
	CreatedAt time.Time `json:"created_at"`

	// The tokens are known to a renewal and to the session's end; Load leaves them out.
	IDToken      string    `json:"id_token"`
	RefreshToken string    `json:"refresh_token"`
	RenewAt      time.Time `json:"renew_at"` // when the tokens must be renewed; zero is at once
}

// Store keeps sessions and sign-ins in progress.
type Store struct {
	client redis.UniversalClient
	limits Limits
	opened *cache.Cache[[sha256.Size]byte, opened] // by the cookie's hash
	// unstored has what renewals made of sessions and Redis did not take, by the nonce of
	// the session that it replaces: the issuer takes the old tokens no more.
	unstored *cache.Cache[string, []byte]

	watches watches
}

// opened is a session as it was when it was read last. It is used while Redis has it
// unchanged, which its nonce says: reading and opening all of it for every request costs
// more than the rest of a small request.
type opened struct {
	key, nonce string
	session    Session // without tokens, which are long
}

const (
	// maxOpened bounds the opened sessions that are kept in memory, of about 700 bytes each.
	maxOpened = 10_000
	// keepOpened is how long one is kept; it is no limit of the session's.
	keepOpened = 5 * time.Minute
	// maxUnstored and keepUnstored bound renewed sessions that wait for Redis.
	maxUnstored  = 10_000
	keepUnstored = 10 * time.Minute
)

// NewStore returns a store on client. It panics when a limit is not above zero:
// Redis would keep such sessions for ever.
func NewStore(client redis.UniversalClient, limits Limits) *Store {
	if limits.Idle <= 0 || limits.Absolute <= 0 {
		panic(fmt.Sprintf("session: limits must be above zero, are %s and %s", limits.Idle, limits.Absolute))
	}
	return &Store{
		client: client, limits: limits,
		opened: cache.New[[sha256.Size]byte, opened](maxOpened), unstored: cache.New[string, []byte](maxUnstored),
	}
}

// remaining is the longest time that a session may still last.
func (s *Store) remaining(session Session) time.Duration {
	return time.Until(session.CreatedAt.Add(s.limits.Absolute))
}

const keyPrefix = "session:"

// digest is a fixed-length name for parts that does not reveal them.
func digest(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// unreachable is the error of every command that Redis did not execute.
func unreachable(doing string, err error) error {
	return fault.Unreachable("The session store", fmt.Errorf("%s: %w", doing, err))
}

// execute runs a pipeline. An absent key is no error.
func execute(ctx context.Context, pipe redis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	// Exec returns the first error only, which may be an absent key.
	for _, command := range commands {
		if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}
