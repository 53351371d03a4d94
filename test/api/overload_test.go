package api_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// A function that has as many requests as it may is not asked for more: those are refused
// at once, and nothing was done. Other functions answer, and so does this one as soon as
// it has places.
func TestOverload(t *testing.T) {
	t.Parallel()
	const places = 2
	s, people := system.StartWithPeople(t, "WAKES=false", fmt.Sprint("REQUESTS_PER_FUNCTION=", places))
	grants := s.StandIn("grant")
	alice := people.Player(t, "alice")
	user := s.UserID(alice)
	release, entered := make(chan struct{}), make(chan struct{}, places)
	grants.Answers(func(w http.ResponseWriter, r *http.Request) {
		select {
		case entered <- struct{}{}:
		default:
			t.Error("the function has more requests than it may")
			return
		}
		<-release
		grants.Function.ServeHTTP(w, r)
	})
	answers := make(chan system.Answer, places)
	for i := range places {
		go func() { answers <- s.Grant(fmt.Sprint("held", i), user, fmt.Sprint("item", i)) }()
	}
	kit.Eventually(t, "the function has as many as it may", func() bool { return len(entered) == places })
	refused := s.Grant("refused", user, "item9")
	system.WantProblem(t, refused, http.StatusServiceUnavailable, "overloaded")
	if refused.Header.Get("Retry-After") == "" {
		t.Error("Retry-After is missing")
	}
	system.WantStatus(t, s.Call(http.MethodGet, system.MePath, alice, ""), http.StatusOK)
	close(release)
	kit.Eventually(t, "both are answered", func() bool { return len(answers) == places })
	for range places {
		system.WantStatus(t, <-answers, http.StatusOK)
	}
	grants.Recovers()
	list, _ := s.Call(http.MethodGet, "/v1/users/"+user+"/entitlements", alice, "").JSON(t)["entitlements"].([]any)
	if len(list) != places {
		t.Errorf("the user has %d items, want the %d that were granted", len(list), places)
	}
	system.WantStatus(t, s.Grant("refused", user, "item9"), http.StatusOK)
}

// What the gateway answers itself, and asks several functions for, is bounded like a
// function.
func TestOverloadOfTheGateway(t *testing.T) {
	t.Parallel()
	const places = 2
	s, people := system.StartWithPeople(t, "WAKES=false", "OVERVIEW_TIMEOUT=30s", fmt.Sprint("REQUESTS_PER_FUNCTION=", places))
	items := s.StandIn("entitlements")
	alice := people.Player(t, "alice")
	s.UserID(alice)
	release, entered := make(chan struct{}), make(chan struct{}, places+1)
	items.Answers(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-release
		items.Function.ServeHTTP(w, r)
	})
	overview := func() system.Answer { return s.Call(http.MethodGet, "/v1/me/overview", alice, "") }
	answers := make(chan system.Answer, places)
	for range places {
		go func() { answers <- overview() }()
	}
	kit.Eventually(t, "as many are read as may be", func() bool { return len(entered) == places })
	refused := overview()
	system.WantProblem(t, refused, http.StatusServiceUnavailable, "overloaded")
	system.WantStatus(t, s.Call(http.MethodGet, system.MePath, alice, ""), http.StatusOK)
	close(release)
	for range places {
		system.WantStatus(t, <-answers, http.StatusOK)
	}
	items.Recovers()
	system.WantStatus(t, overview(), http.StatusOK)
}

// Requests whose bodies come slowly hold no places.
func TestSlowBodiesHoldNoPlaces(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false", "REQUESTS_PER_FUNCTION=1")
	user := s.UserID(people.Player(t, "alice"))
	address := strings.TrimPrefix(s.URL, "http://")
	for i := range 8 {
		conn, err := net.Dial("tcp", address)
		kit.Must(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "POST /v1/entitlements/grants HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nIdempotency-Key: slow-%d\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", address, s.Writer, i)
		kit.Must(t, err)
		// The gateway asks for the body, so it has admitted the request.
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, " 100 ") {
			t.Fatalf("a request that waits for its body: %q, %v", line, err)
		}
	}
	system.WantStatus(t, s.Grant("quick", user, "item1"), http.StatusOK)
}
