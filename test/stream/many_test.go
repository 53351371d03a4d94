package stream_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/system"
)

// 100 users follow one process while each of them is granted something: each stream
// delivers what is its user's, and grants succeed.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, system.RareLooks)
	s.Served()
	const users, each = 100, 2
	ids, streams := make([]string, users), make([]*system.Follower, users)
	many := func(do func(i int)) {
		system.AtOnce(8, func(worker int) {
			for i := worker; i < users; i += 8 {
				do(i)
			}
		})
	}
	many(func(i int) {
		token := people.Player(t, fmt.Sprint("player", i))
		ids[i] = s.UserID(token)
		streams[i] = s.Follow(token)
	})
	var mutex sync.Mutex
	var took, arrived []time.Duration
	answered := map[string]time.Time{}
	began := time.Now()
	for n := range each {
		many(func(i int) {
			at := time.Now()
			key := fmt.Sprint(ids[i], n)
			a := s.Grant(key, ids[i], key)
			mutex.Lock()
			defer mutex.Unlock()
			took, answered[key] = append(took, time.Since(at)), time.Now()
			if a.Status != http.StatusOK {
				t.Errorf("answered %d %s, want 200", a.Status, a.Body)
			}
		})
	}
	t.Logf("%d grants with %d streams: %s", users*each, users, time.Since(began))
	for i, f := range streams {
		for _, e := range f.Until(each) {
			key := e.Item(t)
			if !strings.HasPrefix(key, ids[i]) {
				t.Fatalf("%s received %s", ids[i], e.Data)
			}
			arrived = append(arrived, e.At.Sub(answered[key]))
		}
		if got := f.Got(); len(got) != each || len(idsOf(got)) != each || !f.Open() {
			t.Errorf("%d events, want %d; open: %t", len(got), each, f.Open())
		}
	}
	slices.Sort(took)
	slices.Sort(arrived)
	t.Logf("a grant: median %s, 99%% %s; until it is on the stream: median %s, 99%% %s, most %s",
		took[len(took)/2], took[len(took)*99/100], arrived[len(arrived)/2], arrived[len(arrived)*99/100], arrived[len(arrived)-1])
	if most := arrived[len(arrived)-1]; most > system.NudgedIn {
		t.Errorf("one event came only %s after its grant: not by a nudge", most)
	}
}
