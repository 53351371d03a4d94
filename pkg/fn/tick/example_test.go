package tick_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/fn/transport"
	"github.com/miniserversystem/miniserver/pkg/lease"
)

// A function with two sources, ticked once: both are drained, side by side.
func ExampleHandler() {
	letters, parcels := 3, 1
	source := func(name string, left *int) tick.Source {
		return tick.Source{Name: name, Step: func(context.Context) (lease.Report, error) {
			if *left == 0 {
				return lease.Report{}, nil
			}
			*left--
			return lease.Report{Claimed: 1, Done: 1, More: true}, nil
		}}
	}
	post := tick.Handler(tick.Config{
		Budget: 30 * time.Second, Log: slog.New(slog.DiscardHandler), Life: context.Background(), Running: &sync.WaitGroup{},
	}, source("letters", &letters), source("parcels", &parcels))

	answer := httptest.NewRecorder()
	post.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, tick.Path, nil))
	fmt.Println(answer.Code, letters, parcels)
	fmt.Print(answer.Body)
	// Output:
	// 200 0 0
	// {"claimed":4,"done":4,"retried":0,"dead":0,"lost_lease":0,"more":false}
}

// A function that has committed something wakes the next one, which then does not wait
// for its own tick.
func ExampleWaker() {
	woken := make(chan string)
	functions := transport.Local{"relay": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		woken <- r.Method + " " + r.URL.String()
	})}
	waker := &tick.Waker{Invoke: functions, Log: slog.New(slog.DiscardHandler), Life: context.Background()}
	waker.Wake("relay") // returns at once
	fmt.Println(<-woken)
	// Output: POST http://relay/tick?wake
}
