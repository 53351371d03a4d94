package agones_test

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A match gets a ready server of the fleet, whose annotations name its players.
func TestAllocate(t *testing.T) {
	t.Parallel()
	s, o := start(t, 0)
	s.fleet("default", "lobby", 1)
	s.fleet("elsewhere", "arena", 1)
	s.fleet("default", "arena", 2)
	var protocol string
	s.wrap(func(w http.ResponseWriter, r *http.Request, on http.HandlerFunc) {
		protocol = r.Proto
		on(w, r)
	})
	m := match()
	session, err := allocator(t, o).Allocate(t.Context(), m)
	kit.Must(t, err)
	want := matchmaking.Session{Server: "arena-0", Address: "203.0.113.7", Ports: []matchmaking.Port{{Name: "game", Port: 7203}, {Name: "voice", Port: 7204}}}
	if !reflect.DeepEqual(session, want) {
		t.Errorf("the session is %+v, want %+v", session, want)
	}
	used := s.allocated()
	labelled := []gameServer{{
		Name: "arena-0", Namespace: "default", State: "ALLOCATED",
		Labels:      map[string]string{"agones.dev/fleet": "arena", "miniserver.dev/match": m.ID},
		Annotations: map[string]string{"miniserver.dev/mode": "casual", "miniserver.dev/players": "u_1,u_2"},
	}}
	if !reflect.DeepEqual(used, labelled) {
		t.Errorf("in use are %+v, want %+v", used, labelled)
	}
	if protocol != "HTTP/2.0" {
		t.Errorf("the protocol is %s, so calls do not share one connection", protocol)
	}
}

// The configured namespace is used, and the path of the URL is kept.
func TestNamespaceAndPath(t *testing.T) {
	t.Parallel()
	s, o := start(t, 1)
	s.fleet("games", "arena", 1)
	s.wrap(func(w http.ResponseWriter, r *http.Request, on http.HandlerFunc) {
		http.StripPrefix("/allocator", on).ServeHTTP(w, r)
	})
	o.Namespace = "games"
	for _, path := range []string{"/allocator", "/allocator/"} {
		o.URL = s.URL + path
		_, err := allocator(t, o).Allocate(t.Context(), match())
		if path == "/allocator" {
			kit.Must(t, err)
		} else if !errors.Is(err, matchmaking.ErrNoServer) {
			t.Errorf("with one server for two matches: %v, want ErrNoServer", err)
		}
	}
	if used := s.allocated(); len(used) != 1 || used[0].Namespace != "games" {
		t.Errorf("in use are %+v", used)
	}
}

// The same match gets the same server again, also from another process.
func TestSameMatchSameServer(t *testing.T) {
	t.Parallel()
	s, o := start(t, 3)
	one, other := allocator(t, o), allocator(t, o)
	m := match()
	first, err := one.Allocate(t.Context(), m)
	kit.Must(t, err)
	for range 3 {
		again, err := one.Allocate(t.Context(), m)
		kit.Must(t, err)
		elsewhere, err := other.Allocate(t.Context(), m)
		kit.Must(t, err)
		if !reflect.DeepEqual(again, first) || !reflect.DeepEqual(elsewhere, first) {
			t.Errorf("the match got %v, then %v and %v", first, again, elsewhere)
		}
	}
	if n := len(s.allocated()); n != 1 {
		t.Errorf("one match uses %d servers, want 1", n)
	}
}

// The allocator service allocated a server and its answer got lost: the next call returns
// that server.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s, o := start(t, 3)
	s.wrap(func(w http.ResponseWriter, r *http.Request, on http.HandlerFunc) {
		on(discarding{w}, r)
		if s.called() == 1 {
			panic(http.ErrAbortHandler)
		}
		on(w, r)
	})
	a, m := allocator(t, o), match()
	if session, err := a.Allocate(t.Context(), m); err == nil {
		t.Fatalf("the lost answer arrived: %v", session)
	}
	used := s.allocated()
	if len(used) != 1 {
		t.Fatalf("%d servers are in use, want 1", len(used))
	}
	s.wrap(nil)
	session, err := a.Allocate(t.Context(), m)
	kit.Must(t, err)
	if session.Server != used[0].Name || len(s.allocated()) != 1 {
		t.Errorf("the next call got %s, want %s again", session.Server, used[0].Name)
	}
}

// discarding is a response that is dropped.
type discarding struct{ http.ResponseWriter }

func (discarding) Header() http.Header         { return http.Header{} }
func (discarding) WriteHeader(int)             {}
func (discarding) Write(p []byte) (int, error) { return len(p), nil }

// A server that went back to ready still has the label of its last match. Once another
// match has it, the old match must not get it again.
func TestServerIsUsedAgain(t *testing.T) {
	t.Parallel()
	s, o := start(t, 1)
	a, first, second := allocator(t, o), match(), match()
	_, err := a.Allocate(t.Context(), first)
	kit.Must(t, err)
	s.mutex.Lock()
	s.servers[0].State = "READY"
	s.mutex.Unlock()
	_, err = a.Allocate(t.Context(), second)
	kit.Must(t, err)
	if session, err := a.Allocate(t.Context(), first); !errors.Is(err, matchmaking.ErrNoServer) {
		t.Errorf("%v, %v; want ErrNoServer: another match has the server", session, err)
	}
}

// However many matches ask at once, each gets a server of its own.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const matches = 64
	s, o := start(t, matches)
	a := allocator(t, o)
	var mutex sync.Mutex
	servers := map[string]string{}
	var group sync.WaitGroup
	for range matches {
		group.Go(func() {
			m := match()
			session, err := a.Allocate(t.Context(), m)
			if err != nil {
				t.Error(err)
				return
			}
			mutex.Lock()
			defer mutex.Unlock()
			if other, taken := servers[session.Server]; taken {
				t.Errorf("%s was given to %s and %s", session.Server, other, m.ID)
			}
			servers[session.Server] = m.ID
		})
	}
	group.Wait()
	for _, g := range s.allocated() {
		if servers[g.Name] != g.Labels["miniserver.dev/match"] {
			t.Errorf("%s is labelled for %s, which got another server", g.Name, g.Labels["miniserver.dev/match"])
		}
	}
	if _, err := a.Allocate(t.Context(), match()); !errors.Is(err, matchmaking.ErrNoServer) {
		t.Errorf("with all servers in use: %v, want ErrNoServer", err)
	}
}

// A match whose id cannot be a label is refused without a call: Agones would refuse it, or
// give any server to an empty id.
func TestLabelRefused(t *testing.T) {
	t.Parallel()
	s, o := start(t, 3)
	a := allocator(t, o)
	for _, bad := range []string{
		"", " ", "m_", "_m", "-m", "m-", "m.", "m/1", "m 1", "m,1", "m\n", "m\x00", "é", "m_é1", strings.Repeat("m", 64), strings.Repeat("m", 10_000),
	} {
		m := match()
		m.ID = bad
		if session, err := a.Allocate(t.Context(), m); err == nil || strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 600 {
			t.Errorf("%.80q: %v, %v; want a short error of one line", bad, session, err)
		}
	}
	if n := s.called(); n != 0 {
		t.Errorf("%d calls were made, want none", n)
	}
	for _, good := range []string{"m", "m_01h455vb4pex5vsknk084sn02q", "A.b-c_9", strings.Repeat("m", 63)} {
		m := match()
		m.ID = good
		if _, err := a.Allocate(t.Context(), m); err != nil && !errors.Is(err, matchmaking.ErrNoServer) {
			t.Errorf("%q: %v", good, err)
		}
	}
}
