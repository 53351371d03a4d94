// Package session keeps the sign-ins of browsers in Redis (7 or later, alone or
// as a cluster). The browser holds nothing but a cookie value of 32 random
// bytes. The key under which its session is stored and the key that encrypts it
// (AES-256-GCM) are both derived from that value, so Redis alone opens nothing:
// a dump of it holds no usable cookie, no token and no user. It does not protect
// from somebody who may write to Redis and has a cookie value of his own.
//
// Every command and script touches one key:
//
//	session:{id}           string: the sealed Session; lives for the idle limit
//	session:renewing:{id}  string: who renews it now
//	session:sid:{hash}     sorted set: ids of the sessions of one issuer and SID, by when they end
//	session:subject:{hash} sorted set: the same of one issuer and subject
//	session:ended:{hash}   string: this issuer and SID signed out within the last minute
//	session:once:{hash}    string: a logout token that was used
//	session:login:{hash}   string: the sealed Login of a sign-in in progress
//
// Redis should not evict (maxmemory-policy noeviction), and the client must read
// from the masters, or what has ended may be seen again. Redis' own failures are
// fault.Unavailable; how long they take to show is up to the client's timeouts.
package session

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// ErrNone is the answer to a cookie that opens no session: malformed, unknown,
// expired, signed out or tampered with.
var ErrNone = fault.New(fault.Unauthenticated, "session_missing", "There is no session, or it has ended; sign in again at /login.")

// Limits say how long a session lasts; both are above zero.
type Limits struct {
	Idle     time.Duration // from the last time it was loaded, give or take a tenth
	Absolute time.Duration // from when it was created, whatever happens
}

// Session is what is known of a browser that signed in.
type Session struct {
	UserID    string    `json:"user_id"`
	Issuer    string    `json:"issuer"`
	Subject   string    `json:"subject"` // who it is at the issuer
	Client    string    `json:"client"`  // as which client we signed in there
	SID       string    `json:"sid"`     // the issuer's own session; "" when it names none
	Roles     []string  `json:"roles"`
	AuthTime  time.Time `json:"auth_time"` // when the issuer saw the person
	CreatedAt time.Time `json:"created_at"`

	IDToken      string    `json:"id_token"`
	RefreshToken string    `json:"refresh_token"`
	RenewAt      time.Time `json:"renew_at"` // when the tokens must be renewed; zero is at once
}

// Store keeps sessions and sign-ins in progress.
type Store struct {
	client redis.UniversalClient
	limits Limits
}

// NewStore returns a store on client. It panics when a limit is not above zero:
// Redis would keep such sessions for good.
func NewStore(client redis.UniversalClient, limits Limits) *Store {
	if limits.Idle <= 0 || limits.Absolute <= 0 {
		panic(fmt.Sprintf("session: limits must be above zero, are %s and %s", limits.Idle, limits.Absolute))
	}
	return &Store{client: client, limits: limits}
}

// remaining is how long a session may last at most from now on.
func (s *Store) remaining(session Session) time.Duration {
	return time.Until(session.CreatedAt.Add(s.limits.Absolute))
}

const keyPrefix = "session:"

// digest is a fixed-length name for parts, and does not show them.
func digest(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// unreachable is the error of every command that Redis did not carry out.
func unreachable(doing string, err error) error {
	return fault.Unreachable("The session store", fmt.Errorf("%s: %w", doing, err))
}

// execute runs a pipeline. An absent key is no error.
func execute(ctx context.Context, pipe redis.Pipeliner) error {
	commands, err := pipe.Exec(ctx)
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	// Exec tells of the first error only, and that may be an absent key.
	for _, command := range commands {
		if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}
