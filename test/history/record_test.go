package history_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

const (
	domains = 3 // which share HISTORIES
	clients = 5 // of a history
	each    = 9 // requests of a client
	// judging bounds the checker, whose work grows exponentially with what has no answer.
	judging = 30 * time.Second
)

// seeds are those of one domain's histories.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 32)
		kit.Must(t, err)
		return n
	}
	if seed := number("HISTORY_SEED", 0); seed != 0 {
		return []uint64{seed}
	}
	list := make([]uint64, (number("HISTORIES", 50)+domains-1)/domains)
	for i := range list {
		list[i] = uint64(i) + 1
	}
	return list
}

// record is a history as it comes about.
type record struct {
	s     *system.System
	seed  uint64
	began time.Time

	mutex   sync.Mutex
	history []porcupine.Operation
	open    int // without an answer
}

func newRecord(s *system.System, seed uint64) *record {
	return &record{s: s, seed: seed, began: time.Now()}
}

// client is one of those who send requests at once.
type client struct {
	*record
	id     int
	random *rand.Rand
	hasty  bool // hangs up now and then
}

func (r *record) client(id int) *client {
	return &client{r, id, rand.New(rand.NewPCG(r.seed, uint64(id))), id < clients}
}

// all runs do for each client, at once.
func (r *record) all(do func(c *client)) {
	system.AtOnce(clients, func(i int) { do(r.client(i)) })
}

// observe records one request. Without an output its outcome is not known: it may happen at
// any later time, so it stays open to the end of the history.
func (c *client) observe(input any, ask func() (output any)) {
	call := time.Since(c.began).Nanoseconds()
	output := ask()
	operation := porcupine.Operation{ClientId: c.id, Input: input, Output: output, Call: call, Return: time.Since(c.began).Nanoseconds()}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if output == nil {
		operation.Return = math.MaxInt64
		c.open++
	}
	c.history = append(c.history, operation)
}

// repeatable are requests that were sent, each of which any client may repeat.
type repeatable[T any] struct {
	mutex sync.Mutex
	sent  []T
}

func (r *repeatable[T]) add(request T) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sent = append(r.sent, request)
}

// one returns one of them, or otherwise while there is none.
func (r *repeatable[T]) one(which int, otherwise T) T {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(r.sent) == 0 {
		return otherwise
	}
	return r.sent[which%len(r.sent)]
}

// reader keeps as many connections as there are clients.
var reader = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * domains * clients}}

// ask sends a request to the gateway, and reports whether its outcome is known. A hasty
// client hangs up on one of ten, at any moment.
func (c *client) ask(method, path, token, body string, headers ...string) (a system.Answer, known bool) {
	ctx := context.Background()
	if c.hasty && c.random.IntN(10) == 0 {
		hurried, cancel := context.WithTimeout(ctx, time.Duration(c.random.IntN(20_000))*time.Microsecond)
		defer cancel()
		ctx = hurried
	}
	request, err := http.NewRequestWithContext(ctx, method, c.s.URL+path, strings.NewReader(body))
	if err != nil {
		c.s.T.Error(err)
		return a, false
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Authorization", "Bearer "+token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := reader.Do(request)
	if err != nil {
		return a, false
	}
	defer response.Body.Close()
	a.Status, a.Header = response.StatusCode, response.Header
	if a.Body, err = io.ReadAll(response.Body); err != nil {
		return a, false
	}
	switch a.Status {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return a, false
	}
	return a, a.Text("code") != "idempotency_in_progress"
}

// judge fails the test if no order of the requests explains the answers. It leaves a
// picture of the history where it fails.
func (r *record) judge(t *testing.T, model porcupine.Model) {
	t.Helper()
	again := fmt.Sprintf("HISTORY_SEED=%d go test ./test/history -race -count=20 -run '%s$'", r.seed, t.Name())
	if r.open > len(r.history)/2 {
		t.Errorf("%d of %d requests have no answer, so this history shows nothing: %s", r.open, len(r.history), again)
	}
	result, info := porcupine.CheckOperationsVerbose(model, r.history, judging)
	switch result {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		t.Fatalf("the checker did not decide within %s: %s", judging, again)
	}
	picture := filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d.html", t.Name(), r.seed))
	if err := porcupine.VisualizePath(model, info, picture); err != nil {
		t.Error(err)
	}
	for _, o := range r.history {
		t.Logf("%d %12d %12d %s", o.ClientId, o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
	}
	t.Fatalf("no order of these requests explains their answers; see %s, and try again: %s", picture, again)
}

// shows fails the test if nothing like that is in its histories: then they show less than
// they are there for.
func shows[In, Out any](t *testing.T, histories []porcupine.Operation, what string, is func(in In, out Out) bool) {
	t.Helper()
	if os.Getenv("HISTORY_SEED") != "" {
		return // one history need not have everything
	}
	if !slices.ContainsFunc(histories, func(o porcupine.Operation) bool {
		out, answered := o.Output.(Out)
		return answered && is(o.Input.(In), out)
	}) {
		t.Errorf("in %d requests there was no %s", len(histories), what)
	}
}

// inTurn has one client do as many requests as rapid chooses, one after the other, and each
// choice of the client's is rapid's, too. So where the model does not allow the answers,
// rapid finds few requests that show it.
func inTurn(t *testing.T, s *system.System, model porcupine.Model, do func(c *client, requests int)) {
	t.Helper()
	var seed uint64
	rapid.Check(t, func(chosen *rapid.T) {
		seed++
		c := newRecord(s, seed).client(clients)
		c.random = rand.New(choices{chosen})
		do(c, rapid.IntRange(1, 2*each).Draw(chosen, "requests"))
		if porcupine.CheckOperations(model, c.history) {
			return
		}
		for _, o := range c.history {
			chosen.Log(model.DescribeOperation(o.Input, o.Output))
		}
		chosen.Fatal("the model does not allow these answers")
	})
}

// choices are random numbers that rapid chooses.
type choices struct{ *rapid.T }

// Uint64 has rapid's bits the other way round: rapid prefers small numbers, and rand uses
// the high bits.
func (c choices) Uint64() uint64 { return bits.Reverse64(rapid.Uint64().Draw(c.T, "choice")) }

// step is a request of a history that a test writes by hand, one after the other; without
// an output it stays open.
type step struct{ input, output any }

// allows reports whether the model accepts a history.
func allows(model porcupine.Model, steps ...step) bool {
	var history []porcupine.Operation
	for i, s := range steps {
		o := porcupine.Operation{ClientId: i, Input: s.input, Output: s.output, Call: int64(2 * i), Return: int64(2*i + 1)}
		if s.output == nil {
			o.Return = math.MaxInt64
		}
		history = append(history, o)
	}
	return porcupine.CheckOperations(model, history)
}

// notices fails unless the model accepts the good history and refuses each bad one.
func notices(t *testing.T, model porcupine.Model, good []step, bad map[string][]step) {
	t.Helper()
	if !allows(model, good...) {
		t.Error("a good history is refused")
	}
	for name, steps := range bad {
		if allows(model, steps...) {
			t.Errorf("%s is not noticed", name)
		}
	}
}
