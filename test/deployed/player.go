package deployed

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/browser"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// refusedAfter is when a stream that was refused is asked for again, as a 503 says.
const refusedAfter = 2 * time.Second

// Player is somebody who is signed in, in a browser.
type Player struct {
	ID     string
	system *system.System
}

// SignIn signs somebody in at the issuer, whose password is the name.
func (s System) SignIn(t testing.TB, name string) Player {
	t.Helper()
	b := browser.New()
	response, err := b.SignIn(s.Gateway+"/login?return_to=/v1/me", name, name)
	kit.Must(t, err)
	defer response.Body.Close()
	var me struct {
		ID string `json:"user_id"`
	}
	if err := json.NewDecoder(response.Body).Decode(&me); err != nil || me.ID == "" {
		t.Fatalf("%s signed in, and has no account at %s: %s, %v", name, response.Request.URL, response.Status, err)
	}
	client := *b.Client()
	client.Timeout = 0 // streams are long
	client.Transport = &http.Transport{DialContext: browser.Dial, DisableKeepAlives: true, ResponseHeaderTimeout: answerWithin}
	return Player{ID: me.ID, system: &system.System{T: t, URL: s.Gateway, Client: &client}}
}

// Following is a stream of notifications that is opened again when it ends, as browsers do.
type Following struct {
	t     testing.TB
	stop  context.CancelFunc
	ended chan struct{}

	mutex   sync.Mutex
	streams []*system.Follower
	refused []error
}

// Follow follows what the player is told from now until End.
func (p Player) Follow(t testing.TB) *Following {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	f := &Following{t: t, stop: stop, ended: make(chan struct{})}
	t.Cleanup(func() { f.End() })
	opened := func() bool {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		return len(f.streams) > 0 && f.streams[0].Position() != ""
	}
	go func() {
		defer close(f.ended)
		for position := ""; ctx.Err() == nil; {
			stream, err := p.system.TryFollow(system.StreamPath+"?last_event_id="+url.QueryEscape(position), "")
			f.mutex.Lock()
			if err != nil {
				f.refused = append(f.refused, err)
			} else {
				f.streams = append(f.streams, stream)
			}
			f.mutex.Unlock()
			if err != nil {
				kit.Pause(refusedAfter)
				continue
			}
			select {
			case <-stream.Ended:
			case <-ctx.Done():
				stream.HangUp()
				<-stream.Ended
			}
			position = cmp.Or(stream.Position(), position)
			kit.Pause(retryAfter)
		}
	}()
	kit.Within(t, answerWithin, "the stream has a position, from which it misses nothing", opened)
	return f
}

// Until waits until items were told, and checks that each was told once: what comes again
// on a later stream has the same id.
func (f *Following) Until(items []string, within time.Duration) {
	f.t.Helper()
	var ids map[string]map[string]bool
	kit.Within(f.t, within, "everything was told on the stream", func() bool {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		ids = map[string]map[string]bool{}
		for _, stream := range f.streams {
			for _, event := range stream.Got() {
				item := event.Item(f.t)
				if ids[item] == nil {
					ids[item] = map[string]bool{}
				}
				ids[item][event.ID] = true
			}
		}
		return !slices.ContainsFunc(items, func(item string) bool { return len(ids[item]) == 0 })
	})
	for _, item := range items {
		if len(ids[item]) > 1 {
			f.t.Errorf("%s was told under %d ids", item, len(ids[item]))
		}
	}
}

// End ends the stream, and returns how many there were one after another, and how often none
// was opened.
func (f *Following) End() (streams, refused int) {
	f.stop()
	<-f.ended
	for _, stream := range f.streams {
		if stream.Position() != "" {
			streams++
		}
	}
	return streams, len(f.refused)
}
