package system

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// Named returns the data of the events called name.
func (f *Follower) Named(name string) (list []map[string]any) {
	f.t.Helper()
	for _, e := range f.Got() {
		if e.Name == name {
			var v map[string]any
			kit.Must(f.t, json.Unmarshal([]byte(e.Data), &v))
			list = append(list, v)
		}
	}
	return list
}

// Shows waits until ok accepts the last ticket event, and returns that ticket.
func (f *Follower) Shows(what string, ok func(ticket map[string]any) bool) map[string]any {
	f.t.Helper()
	var last map[string]any
	kit.Eventually(f.t, what, func() bool {
		if list := f.Named("ticket"); len(list) > 0 {
			last = list[len(list)-1]
		}
		return last != nil && ok(last)
	})
	return last
}

// OpenStream requests a stream and returns the answer; close ends the stream.
func (s *System) OpenStream(token string) (a Answer, close func()) {
	s.T.Helper()
	request, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, s.URL+StreamPath, nil)
	kit.Must(s.T, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	kit.Must(s.T, err)
	s.T.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode == http.StatusOK {
		return Answer{response.StatusCode, response.Header, nil}, func() { _ = response.Body.Close() }
	}
	body, err := io.ReadAll(response.Body)
	kit.Must(s.T, err)
	return Answer{response.StatusCode, response.Header, body}, func() {}
}

// With RareLooks, an event that arrives within NudgedIn came by a nudge: the stream looks
// by itself too rarely.
const (
	RareLooks = "STREAM_LOOK_EVERY=1m"
	NudgedIn  = 30 * time.Second
)

// StreamEvent is one event of a stream, as EventSource would deliver it.
type StreamEvent struct {
	ID, Name, Data string
	At             time.Time
}

// Item is what the event's notification is about.
func (e StreamEvent) Item(t testing.TB) string {
	t.Helper()
	var notification struct {
		Payload struct {
			Item string `json:"stock_keeping_unit"`
		}
	}
	kit.Must(t, json.Unmarshal([]byte(e.Data), &notification))
	return notification.Payload.Item
}

// Follower is an open stream and the events it has received.
type Follower struct {
	t      testing.TB
	Header http.Header
	HangUp func()
	Ended  chan struct{} // closed at the end of the stream
	End    error         // nil after an orderly end; set before Ended is closed

	mutex  sync.Mutex
	lastID string
	Retry  string
	events []StreamEvent
}

// Follow opens a stream; headers are "Name: value".
func (s *System) Follow(token string, headers ...string) *Follower {
	s.T.Helper()
	return s.FollowAt(StreamPath, token, headers...)
}

// FollowAt is Follow for a path with a query.
func (s *System) FollowAt(path, token string, headers ...string) *Follower {
	s.T.Helper()
	f, err := s.TryFollow(path, token, headers...)
	if err != nil {
		s.T.Errorf("no stream was opened: %v", err)
		f = &Follower{t: s.T, HangUp: func() {}, Ended: make(chan struct{})}
		close(f.Ended)
	}
	return f
}

// TryFollow is FollowAt for a stream that may be refused.
func (s *System) TryFollow(path, token string, headers ...string) (*Follower, error) {
	s.T.Helper()
	ctx, hangUp := context.WithCancel(context.Background())
	s.T.Cleanup(hangUp)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	kit.Must(s.T, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := cmp.Or(s.Client, http.DefaultClient).Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%+v", s.Read(response, nil))
	}
	f := &Follower{t: s.T, Header: response.Header, HangUp: hangUp, Ended: make(chan struct{})}
	go func() {
		defer close(f.Ended)
		defer response.Body.Close()
		f.End = f.read(response.Body)
	}()
	return f, nil
}

// read parses the stream as the HTML standard specifies.
func (f *Follower) read(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	var id string
	var e StreamEvent
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), ":") {
			continue // a comment
		}
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		f.mutex.Lock()
		switch name {
		case "id":
			id = value
		case "event":
			e.Name = value
		case "data":
			e.Data += value
		case "retry":
			f.Retry = value
		case "": // the end of an event
			f.lastID = id
			if e.Data != "" {
				e.ID, e.At = id, time.Now()
				f.events = append(f.events, e)
			}
			e = StreamEvent{}
		}
		f.mutex.Unlock()
	}
	return lines.Err()
}

// Got returns the events so far.
func (f *Follower) Got() []StreamEvent {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return slices.Clone(f.events)
}

// Position returns the last event's id, from which another stream resumes.
func (f *Follower) Position() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.lastID
}

// Until waits for n events and returns them.
func (f *Follower) Until(n int) []StreamEvent {
	f.t.Helper()
	return f.UntilWithin(n, kit.Patience)
}

// UntilWithin is Until with a time limit of its own.
func (f *Follower) UntilWithin(n int, within time.Duration) []StreamEvent {
	f.t.Helper()
	kit.Within(f.t, within, fmt.Sprintf("%d events", n), func() bool { return len(f.Got()) >= n })
	return f.Got()
}

// WantEnd waits for the end of the stream and returns the client's read error.
func (f *Follower) WantEnd(why string) error {
	f.t.Helper()
	select {
	case <-f.Ended:
		return f.End
	case <-time.After(kit.Patience):
		f.t.Fatalf("the stream did not end within %s: %s", kit.Patience, why)
		return nil
	}
}

// Open reports whether the stream has not ended.
func (f *Follower) Open() bool {
	select {
	case <-f.Ended:
		return false
	default:
		return true
	}
}
