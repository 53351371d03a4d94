package stream_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// A stream ends in good order after STREAM_LIFETIME, and the client knows when to
// reconnect and from which event.
func TestStreamLifetime(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "STREAM_LIFETIME=2s")
	alice := people.Player(t, "alice")
	user := s.UserID(alice)
	began := time.Now()
	f := s.Follow(alice)
	s.Grant("k1", user, "item1")
	s.DeliverAll()
	f.Until(1)
	if err := f.WantEnd("its lifetime is over"); err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
	if took := time.Since(began); took < 1800*time.Millisecond || took > 5*time.Second {
		t.Errorf("the stream lasted %s, want STREAM_LIFETIME", took)
	}
	if f.Retry == "" || !strings.HasPrefix(f.Position(), "n_") {
		t.Errorf("retry %q, id %q, want both", f.Retry, f.Position())
	}
}

// A stream ends with its caller's session.
func TestStreamEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	people := system.StartIssuer(t, "http://"+listener.Addr().String(), time.Minute, true)
	s := system.StartOn(t, listener, "OIDC_ISSUER="+people.URL(), "WAKES=false")
	cookie := func(p *system.Person) string { return "Cookie: miniserver_session=" + p.Cookie() }
	alice, again, bob := s.Person(), s.Person(), s.Person()
	alice.SignIn("alice", "/")
	again.SignIn("alice", "/")
	bob.SignIn("bob", "/")
	own, others, bobs := s.Follow("", cookie(alice)), s.Follow("", cookie(again)), s.Follow("", cookie(bob))

	system.WantStatus(t, alice.Do(http.MethodPost, "/logout", "", system.CSRF), http.StatusNoContent)
	began := time.Now()
	if err := own.WantEnd("she signed out"); err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
	t.Logf("signing out ended the stream after %s", time.Since(began))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the sign-out ended the stream only after %s", took)
	}
	if !others.Open() || !bobs.Open() {
		t.Error("other sessions' streams have ended")
	}
	kit.Must(t, people.EndSessions("alice"))
	began = time.Now()
	if err := others.WantEnd("the issuer signed her out"); err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
	t.Logf("the back channel ended the stream after %s", time.Since(began))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the back channel ended the stream only after %s", took)
	}
	// His session is still open, and its stream still delivers.
	user := bob.Do(http.MethodGet, "/v1/me", "").JSON(t)["user_id"].(string)
	s.Writer = identity.Token(t, people.URL(), "purchase-service", "purchase-service-secret")
	s.Grant("k1", user, "item1")
	s.DeliverAll()
	bobs.Until(1)
}

// A stream that was opened with an access token ends when that expires.
func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	s.UserID(people.Player(t, "alice"))
	expires := time.Now().Add(3 * time.Second).Truncate(time.Second)
	f := s.Follow(people.Token(t, map[string]any{"sub": "alice", "exp": expires.Unix()}))
	if err := f.WantEnd("the token has expired"); err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
	if late := time.Since(expires); late < 0 || late > 2*time.Second {
		t.Errorf("the stream ended %s after the token expired, want 2s at most", late)
	}
}

// A token that expires while the request's body arrives slowly opens no stream that
// outlives it.
func TestStreamOfATokenThatExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	s.UserID(people.Player(t, "alice"))
	expires := time.Now().Add(3 * time.Second).Truncate(time.Second)
	token := people.Token(t, map[string]any{"sub": "alice", "exp": expires.Unix()})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	kit.Must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1\r\n\r\n", system.StreamPath, token)
	kit.Must(t, err)
	kit.Pause(time.Until(expires) + 500*time.Millisecond) // nothing signals that a token expired
	_, err = fmt.Fprint(conn, "x")
	kit.Must(t, err)
	kit.Must(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	kit.Must(t, err)
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("%s: the stream of an expired token is still open after 5 s", answer.Status)
	}
}

// A process that shuts down first ends its streams, in good order, and does not wait for
// them: with all functions in one, the stream function alone, the gateway alone.
func TestStreamShutdown(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*system.System) func() error{
		"one process":     func(s *system.System) func() error { return s.Served() },
		"stream function": func(s *system.System) func() error { _, stop := s.Apart(); return stop },
		"gateway":         func(s *system.System) func() error { stop, _ := s.Apart(); return stop },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, people := system.StartWithPeople(t, "WAKES=false")
			stop := stop(s)
			alice := people.Player(t, "alice")
			s.UserID(alice)
			var streams []*system.Follower
			for range 8 {
				streams = append(streams, s.Follow(alice))
			}
			began := time.Now()
			if err := stop(); err != nil {
				t.Error(err)
			}
			t.Logf("the shutdown took %s", time.Since(began))
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the shutdown took %s", took)
			}
			for _, f := range streams {
				if err := f.WantEnd("the process has ended"); err != nil {
					t.Errorf("the stream broke off: %v", err)
				}
			}
		})
	}
}
