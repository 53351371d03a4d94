package deployed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

const (
	// tokenLife is how long clients use a token, which lasts five minutes.
	tokenLife = 2 * time.Minute
	// wakesWithin bounds the first grant.
	wakesWithin = 5 * time.Minute
	retryAfter  = 100 * time.Millisecond
)

// Grants says how clients grant.
type Grants struct {
	Clients int
	// Patient clients send a request again, with its key, until it is answered 200, and for
	// two minutes more after End. Others do not. What is then not answered has failed.
	Patient bool
	// To is the user who is granted everything; empty, each grant has a user of its own.
	To string
	// Every is how often each client begins a grant; 0 is as soon as the one before ended.
	Every time.Duration
}

// Load is grants that go on.
type Load struct {
	Grants
	system System
	stop   context.CancelFunc
	group  sync.WaitGroup

	mutex    sync.Mutex
	token    string
	since    time.Time // when the token was new
	answered []string
	last     time.Time // when one was answered last
	longest  time.Duration
	took     []time.Duration
	failures []error
}

// Load starts clients that grant until End, after a first grant that wakes the functions.
func (s System) Load(t testing.TB, g Grants) *Load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &Load{Grants: g, system: s, stop: stop, token: s.Token(t), since: time.Now()}
	t.Cleanup(stop)
	waking, cancel := context.WithTimeout(ctx, wakesWithin)
	defer cancel()
	l.grant(waking, strings.ReplaceAll(uuid.NewString(), "-", ""), true)
	l.last, l.longest, l.took = time.Now(), 0, nil
	for range g.Clients {
		l.group.Go(func() {
			for ctx.Err() == nil {
				next := time.Now().Add(g.Every)
				l.grant(ctx, strings.ReplaceAll(uuid.NewString(), "-", ""), g.Patient)
				kit.Pause(time.Until(next))
			}
		})
	}
	return l
}

func (l *Load) grant(ctx context.Context, unique string, patient bool) {
	user, item, name := l.To, "item-"+unique, "item-"+unique
	if user == "" {
		user, item, name = "u_"+unique, "item1", "u_"+unique
	}
	var until time.Time
	for {
		began := time.Now()
		if ctx.Err() == nil {
			until = began.Add(2 * answerWithin)
		}
		// A request that has begun is waited for, so that none is neither answered nor failed.
		status, body, err := l.system.Do(context.WithoutCancel(ctx), l.current(), http.MethodPost, system.GrantsPath, unique,
			system.ChangeBody(user, item, "purchase", unique))
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, body)
		}
		l.mutex.Lock()
		ended := err == nil || !patient || time.Now().After(until)
		switch {
		case err == nil:
			l.answered, l.took = append(l.answered, name), append(l.took, time.Since(began))
			l.longest, l.last = max(l.longest, time.Since(l.last)), time.Now()
		case status == http.StatusUnauthorized:
			l.since = time.Time{} // the issuer may have other keys
		}
		if err != nil && ended {
			l.failures = append(l.failures, err)
		}
		l.mutex.Unlock()
		if ended {
			return
		}
		kit.Pause(retryAfter)
	}
}

// current returns a token, which is the one before while the issuer is away.
func (l *Load) current() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if time.Since(l.since) > tokenLife {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if token, err := l.system.token(ctx); err == nil {
			l.token, l.since = token, time.Now()
		}
	}
	return l.token
}

// Pause returns the longest time for which no client was answered, since the last call.
func (l *Load) Pause() time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	longest := max(l.longest, time.Since(l.last))
	l.longest = 0
	return longest
}

// Answered returns how many grants were answered so far.
func (l *Load) Answered() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.answered)
}

// Took returns how long the answer took that was slower than this part of all, such as 0.99.
func (l *Load) Took(part float64) time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	all := slices.Sorted(slices.Values(l.took))
	if len(all) == 0 {
		return 0
	}
	return all[int(part*float64(len(all)-1))]
}

// End ends the load, and returns the users, or with To the items, whose grants were
// answered, and what failed.
func (l *Load) End() (answered []string, failed error) {
	l.stop()
	l.group.Wait()
	return l.answered, errors.Join(l.failures...)
}
