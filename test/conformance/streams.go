package conformance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/functions/stream"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	// eventWithin bounds how long an event may take that nothing holds up.
	eventWithin = 20 * time.Second
	// streamEnds bounds how long a stream may outlast its process's SIGTERM.
	streamEnds = 5 * time.Second
)

// follow opens the caller's live stream and returns its lines once it has begun. The
// channel is closed at the stream's end.
func (s *scene) follow() <-chan string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin+eventWithin+s.adapter.Quiet)
	s.t.Cleanup(cancel)
	response, err := s.instance.RoundTrip(s.ask(http.MethodGet, stream.Route.Path, s.writer, "").WithContext(ctx))
	kit.Must(s.t, err)
	s.t.Cleanup(func() { _ = response.Body.Close() })
	if media := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || !strings.HasPrefix(media, "text/event-stream") {
		s.t.Fatalf("the stream is answered %d %s", response.StatusCode, media)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		reader := bufio.NewReader(response.Body)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				if err != io.EOF {
					lines <- "broken off: " + err.Error()
				}
				return
			}
			lines <- line
		}
	}()
	s.line(lines, "retry: ")
	return lines
}

// line waits for a line with this prefix.
func (s *scene) line(lines <-chan string, begins string) {
	s.t.Helper()
	late := time.After(eventWithin)
	for {
		select {
		case line, open := <-lines:
			if !open {
				s.t.Fatalf("the stream ended before a line beginning %q", begins)
			}
			if strings.HasPrefix(line, begins) {
				return
			}
		case <-late:
			s.t.Fatalf("not within %s: a line beginning %q", eventWithin, begins)
		}
	}
}

// Events arrive while the stream is open.
func (s *scene) stream() string {
	me := s.send(s.ask(http.MethodPost, "/v1/me", s.writer, ""))
	me.want(s.t, http.StatusOK)
	user, _ := me.json(s.t)["user_id"].(string)
	lines := s.follow()
	s.send(s.grant("stream", user, "item1")).want(s.t, http.StatusOK)
	s.carry(user)
	s.line(lines, "event: notification")
	return "arrives while it is open"
}

// After SIGTERM a stream ends in good order, and delays nothing.
func (s *scene) streamEnds() string {
	s.start("gateway", "account", "stream")
	lines := s.follow()
	began := time.Now()
	s.instance.Terminate()
	for late := time.After(s.adapter.Quiet + streamEnds); ; {
		select {
		case line, open := <-lines:
			if strings.HasPrefix(line, "broken off") {
				s.t.Errorf("the stream was %s", line)
			}
			if open {
				continue
			}
		case <-late:
			s.t.Fatalf("the stream is still open after %s", s.adapter.Quiet+streamEnds)
		}
		break
	}
	kit.Must(s.t, s.instance.Wait(s.within()))
	return fmt.Sprintf("at its end, status 0 after %.1f s", time.Since(began).Seconds())
}

// within bounds how long an instance may take to end.
func (s *scene) within() time.Duration {
	if s.adapter.Grace > 0 {
		return s.adapter.Quiet + s.adapter.Grace
	}
	return s.adapter.Quiet + grace
}
