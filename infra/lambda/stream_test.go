package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const streamPath = "/v1/me/notifications/stream"

// readUntil reads lines until one begins with prefix, and returns it.
func readUntil(t testing.TB, reader *bufio.Reader, prefix string) string {
	t.Helper()
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended before %q: %v", prefix, err)
		}
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
}

// me returns the user id of the service that t's token belongs to.
func (s *system) me(p *process) string {
	s.t.Helper()
	a := p.url(request{method: http.MethodPost, path: "/v1/me", headers: map[string]string{"authorization": "Bearer " + s.writer}}.url())
	id, _ := a.json(s.t)["user_id"].(string)
	if id == "" {
		s.t.Fatalf("POST /v1/me: %+v", a)
	}
	return id
}

// notify grants user something by p and ticks p until the notification is sent.
func (s *system) notify(p *process, key, user string) {
	s.t.Helper()
	if a := p.api(s.grant(key, user).api()); a.StatusCode != http.StatusOK {
		s.t.Fatalf("grant: %+v", a)
	}
	for _, function := range []string{"relay", "notify", "deliver"} {
		if answer, body := p.invoke(tickEvent(s.t, `{"function":"`+function+`"}`), time.Minute); answer.failed || !strings.Contains(string(body), `"done":1`) {
			s.t.Fatalf("tick of %s: %s", function, body)
		}
	}
}

// By a function URL the stream is live: the client gets an event while the invocation
// runs, which ends before its deadline.
func TestLiveStream(t *testing.T) {
	t.Parallel()
	s := setup(t)
	follower, other := s.start(), s.start()
	user := s.me(other)
	const timeout = 8 * time.Second
	i := follower.begin(request{method: http.MethodGet, path: streamPath, headers: map[string]string{"authorization": "Bearer " + s.writer}}.url(), timeout)
	answer := follower.wait(i)
	head, body := readPrelude(t, answer)
	if head.StatusCode != http.StatusOK || head.Headers["Content-Type"] != "text/event-stream" {
		t.Fatalf("no stream: %+v", head)
	}
	readUntil(t, body, "retry: ")
	came := make(chan error, 1)
	go func() {
		line, err := "", error(nil)
		for err == nil && !strings.HasPrefix(line, "event: notification") {
			line, err = body.ReadString('\n')
		}
		came <- err
	}()
	// The nudge may be lost while a process that has just started connects to NATS; the
	// stream's next look would be too late here.
	for n, notified := 1, false; !notified; n++ {
		s.notify(other, fmt.Sprint("k", n), user)
		select {
		case err := <-came:
			if notified = true; err != nil {
				t.Fatalf("the stream ended before an event: %v", err)
			}
		case <-time.After(time.Second):
		}
	}
	if data := readUntil(t, body, "data: "); !strings.Contains(data, `"EntitlementGranted"`) {
		t.Errorf("the stream sent %s", data)
	}
	select {
	case <-answer.done:
		t.Error("the answer had ended before it was read: it is not streamed")
	default:
	}
	go func() { _, _ = io.Copy(io.Discard, body) }() // there may be more, and it is a pipe
	if left := time.Until(i.deadline); left < answerMargin {
		t.Fatalf("too late for an event: %s left", left)
	}
	<-answer.done
	if left := time.Until(i.deadline); left < answerMargin/4 {
		t.Errorf("it ended %s before its deadline", left)
	}
	if len(answer.trailer.Get("Lambda-Runtime-Function-Error-Type")) > 0 {
		t.Errorf("it broke off: %v", answer.trailer)
	}
	// The process takes the next request.
	if a := follower.url(request{method: http.MethodGet, path: "/health/readiness"}.url()); a.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %+v", a)
	}
}

// An HTTP API takes whole answers, so a stream ends with its first event, and the next
// request continues from there.
func TestStreamBehindAnHTTPAPI(t *testing.T) {
	t.Parallel()
	s := setup(t)
	follower, other := s.start(), s.start()
	user := s.me(other)
	follow := request{method: http.MethodGet, path: streamPath, headers: map[string]string{"authorization": "Bearer " + s.writer}}
	quiet := follower.begin(follow.api(), 3*time.Second)
	nothing := follower.apiAnswer(quiet)
	if left := time.Until(quiet.deadline); strings.Contains(nothing.Body, "data: ") || left < answerMargin/4 || left > 2*answerMargin {
		t.Fatalf("a stream without news ended %s before the deadline: %+v", left, nothing)
	}
	began := time.Now()
	i := follower.begin(follow.api(), time.Minute)
	s.notify(other, "k1", user)
	a := follower.apiAnswer(i)
	if a.StatusCode != http.StatusOK || strings.Count(a.Body, "event: notification") != 1 || !strings.Contains(a.Body, "retry: ") {
		t.Fatalf("the stream with an event: %+v", a)
	}
	if took := time.Since(began); took > apiGatewayTimeout/2 {
		t.Errorf("the answer took %s", took)
	}
	before := a.Body[:strings.Index(a.Body, "\nevent: ")]
	follow.headers["last-event-id"] = before[strings.LastIndex(before, "id: ")+len("id: "):]
	s.notify(other, "k2", user)
	if again := follower.api(follow.api()); strings.Count(again.Body, "event: notification") < 1 || !strings.Contains(again.Body, `"p_k2"`) {
		t.Errorf("from %q on: %+v", follow.headers["last-event-id"], again)
	}
}
