package issuer

import (
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// sessionLifetime is how long after a sign-in tokens can be refreshed.
	sessionLifetime = 10 * time.Hour

	maxSessions     = 10_000
	maxAccessTokens = 50_000
)

// session is one sign-in at a client, with the family of refresh tokens that descends
// from it. Only the newest member of the family is valid.
type session struct {
	grant
	rotation uint64 // number of the newest refresh token
}

var (
	errNoSession          = errors.New("the session is unknown or over")
	errRefreshTokenReused = errors.New("the refresh token was used before")
)

// sessionStore holds sessions, and the access tokens that are valid.
type sessionStore struct {
	now      func() time.Time
	lifetime time.Duration // of access tokens
	refresh  refreshTokens

	mu       sync.Mutex
	sessions *expiringMap[session]
	access   *expiringMap[accessToken]
}

// accessToken is what the issuer remembers of an access token.
type accessToken struct {
	grant
	issued, expires time.Time
}

func newSessionStore(lifetime time.Duration, now func() time.Time) *sessionStore {
	return &sessionStore{
		now:      now,
		lifetime: lifetime,
		refresh:  newRefreshTokens(),
		sessions: newExpiringMap[session](maxSessions, now),
		access:   newExpiringMap[accessToken](maxAccessTokens, now),
	}
}

// open begins a session and returns its first refresh token.
func (s *sessionStore) open(g *grant) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions.put(g.sessionID, session{grant: *g}, s.now().Add(sessionLifetime))
	return s.refresh.make(g.sessionID, 0)
}

// find returns the session of a refresh token. With errRefreshTokenReused the session is
// returned too, because it must end.
func (s *sessionStore) find(token string) (session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findLocked(token)
}

func (s *sessionStore) findLocked(token string) (session, error) {
	id, rotation, ok := s.refresh.parse(token)
	if !ok {
		return session{}, errNoSession
	}
	found, ok := s.sessions.get(id)
	if !ok {
		return session{}, errNoSession
	}
	if rotation != found.rotation {
		return found, errRefreshTokenReused
	}
	return found, nil
}

// rotate replaces a refresh token by the next one. Of two concurrent calls with the same
// token one gets errRefreshTokenReused.
func (s *sessionStore) rotate(token string) (string, session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.findLocked(token)
	if err != nil {
		return "", found, err
	}
	found.rotation++
	expires := s.sessions.entries[found.sessionID].expires // rotation does not prolong it
	s.sessions.put(found.sessionID, found, expires)
	return s.refresh.make(found.sessionID, found.rotation), found, nil
}

// grantAccess remembers a new access token and returns its id.
func (s *sessionStore) grantAccess(g *grant) (string, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	token := accessToken{grant: *g, issued: now, expires: now.Add(s.lifetime)}
	id := uuid.NewString()
	s.access.put(id, token, token.expires)
	return id, token.expires
}

// accessByID finds an access token that is valid: not expired, not revoked, and not of a
// session that has ended.
func (s *sessionStore) accessByID(id string) (accessToken, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, ok := s.access.get(id)
	if !ok {
		return accessToken{}, false
	}
	if token.sessionID != "" {
		if _, alive := s.sessions.get(token.sessionID); !alive {
			return accessToken{}, false
		}
	}
	return token, true
}

func (s *sessionStore) revokeAccess(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.access.remove(id)
}

// end ends the sessions that match and returns them.
func (s *sessionStore) end(matches func(session) bool) []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []session
	s.sessions.each(func(id string, candidate session) {
		if matches(candidate) {
			s.sessions.remove(id)
			ended = append(ended, candidate)
		}
	})
	return ended
}
