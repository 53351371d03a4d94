package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// wish is what somebody sends with a key: a transfer, or the reversal of one.
type wish struct {
	client, key string
	owner       string // who must own from; empty for a reversal
	from, to    int64
	amount      transfer.Amount
	reverses    string // id of the transfer, or empty
}

// ending is a terminal answer, and to whom.
type ending struct {
	wish
	status, body string
}

// witness remembers what was sent with every key and how it was answered, so that
// problems can compare that with what is stored.
type witness struct {
	answers atomic.Int64

	mutex  sync.Mutex
	wishes map[string][]wish // by key
	told   map[string]map[ending]int
	odd    []string // answers that nobody may get, whatever is stored
	count  map[string]int
}

func newWitness() *witness {
	return &witness{wishes: map[string][]wish{}, told: map[string]map[ending]int{}, count: map[string]int{}}
}

// ask sends w and remembers the answer. The key goes along as the trace context: it
// comes back in the event of the transfer that it made, which says whose a
// transfer is without asking the row of the key.
func (v *witness) ask(ctx context.Context, store *transfer.Store, w wish) (transfer.Answer, error) {
	v.mutex.Lock()
	known := false
	for _, earlier := range v.wishes[w.key] {
		known = known || earlier == w
	}
	if !known {
		v.wishes[w.key] = append(v.wishes[w.key], w)
	}
	v.mutex.Unlock()
	request := transfer.Request{Client: w.client, Key: w.key, Owner: w.owner, From: w.from, To: w.to, Amount: w.amount, Traceparent: w.key}
	var answer transfer.Answer
	var err error
	if w.reverses == "" {
		answer, err = store.Transfer(ctx, request)
	} else {
		answer, err = store.Reverse(ctx, request, w.reverses)
	}
	v.answers.Add(1)
	v.mutex.Lock()
	defer v.mutex.Unlock()
	switch {
	case err != nil:
		v.count["error: "+kind(err)]++
		if !expected(ctx, err) {
			v.odd = append(v.odd, fmt.Sprintf("key %s: an error that callers cannot act on: %v", w.key, err))
		}
	case answer.Status == transfer.InProgress:
		v.count[transfer.InProgress]++
		if len(answer.Body) > 0 {
			v.odd = append(v.odd, fmt.Sprintf("key %s is in progress, and %s", w.key, answer.Body))
		}
	default:
		v.count[word(answer)]++
		if v.told[w.key] == nil {
			v.told[w.key] = map[ending]int{}
		}
		v.told[w.key][ending{w, answer.Status, string(answer.Body)}]++
	}
	return answer, err
}

// word is what an answer is counted as: SUCCEEDED, or the reason of FAILED.
func word(a transfer.Answer) string {
	if _, after, found := strings.Cut(string(a.Body), `"errorCode":"`); found {
		return strings.TrimSuffix(after, `"}`)
	}
	return a.Status
}

func kind(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code
	}
	return "other"
}

// expected reports whether a caller may get err: the key is for another request, the
// currencies differ, it is not known how it ended, or the caller itself hung up.
func expected(ctx context.Context, err error) bool {
	return errors.Is(err, idempotency.ErrReused) || errors.Is(err, transfer.ErrCurrencies) ||
		fault.Of(err) == fault.Unavailable || ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// heard reports whether somebody was told how the request of key ended.
func (v *witness) heard(key string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return len(v.told[key]) > 0
}

// mustBe asks and fails the test unless the answer is the status.
func (v *witness) mustBe(t *testing.T, store *transfer.Store, w wish, status string) {
	t.Helper()
	if answer, err := v.ask(t.Context(), store, w); err != nil || answer.Status != status {
		t.Errorf("%+v %s, %v; want %s", answer, answer.Body, err, status)
	}
}
