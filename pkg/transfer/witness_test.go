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

// wish is a request that is sent with a key: a transfer, or the reversal of one.
type wish struct {
	client, key string
	owner       string // must own from; empty for a reversal
	from, to    int64
	amount      transfer.Amount
	reverses    string // id of the transfer, or empty
}

// ending is a terminal answer and the request that got it.
type ending struct {
	wish
	status, body string
}

// witness remembers all requests of every key and their answers, so that problems can
// compare them with the database.
type witness struct {
	answers atomic.Int64

	mutex   sync.Mutex
	wishes  map[string][]wish         // by key
	endings map[string]map[ending]int // by key
	odd     []string                  // answers that are wrong, whatever is stored
	count   map[string]int
}

func newWitness() *witness {
	return &witness{wishes: map[string][]wish{}, endings: map[string]map[ending]int{}, count: map[string]int{}}
}

// ask sends w and remembers the answer. It sends the key as the trace context, too: so the
// transfer's event names the key, independently of the key's row.
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
			v.odd = append(v.odd, fmt.Sprintf("key %s is in progress, but has the answer %s", w.key, answer.Body))
		}
	default:
		v.count[word(answer)]++
		if v.endings[w.key] == nil {
			v.endings[w.key] = map[ending]int{}
		}
		v.endings[w.key][ending{w, answer.Status, string(answer.Body)}]++
	}
	return answer, err
}

// word returns the word that an answer is counted as: SUCCEEDED, or the reason of FAILED.
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

// expected reports whether a caller may get err: the key is used for another request, the
// currencies differ, the outcome is unknown, or the caller itself hung up.
func expected(ctx context.Context, err error) bool {
	return errors.Is(err, idempotency.ErrReused) || errors.Is(err, transfer.ErrCurrencies) ||
		fault.Of(err) == fault.Unavailable || ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// heard reports whether a caller was answered how the request of key ended.
func (v *witness) heard(key string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return len(v.endings[key]) > 0
}

// mustBe sends w and fails the test unless the answer has the status.
func (v *witness) mustBe(t *testing.T, store *transfer.Store, w wish, status string) {
	t.Helper()
	if answer, err := v.ask(t.Context(), store, w); err != nil || answer.Status != status {
		t.Errorf("answered %+v %s, %v; want %s", answer, answer.Body, err, status)
	}
}
