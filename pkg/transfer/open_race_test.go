package transfer_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// Accounts in a new currency are opened at once, with each key several times: each key
// gets one account and one answer, and the currency gets one account of the system.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	const keys, each = 8, 4
	a := newArena(t, 16, "cache_statement", nil)
	bodies := map[string]map[string]int{}
	var mutex sync.Mutex
	var group sync.WaitGroup
	for n := range keys {
		first := amount(t, fmt.Sprintf("%d.0001", n+1))
		o := transfer.Open{Client: "ops", Key: uuid.NewString(), Owner: fmt.Sprint("u_", n), Currency: "XTS", Balance: &first, Retention: time.Hour}
		for range each {
			group.Go(func() {
				response, err := a.OpenAccount(t.Context(), o)
				if err != nil {
					t.Error(err)
				}
				mutex.Lock()
				defer mutex.Unlock()
				if bodies[o.Key] == nil {
					bodies[o.Key] = map[string]int{}
				}
				bodies[o.Key][string(response.Body)]++
			})
		}
	}
	group.Wait()
	for key, different := range bodies {
		if len(different) != 1 {
			t.Errorf("key %s was answered %v, want one answer", key, different)
		}
	}
	if got := a.one(`SELECT count(owner_user_id) || ' of ' || count(*) FROM core.account`); got != fmt.Sprintf("%d of %d", keys, keys+1) {
		t.Errorf("%s accounts have an owner, want %d of %d", got, keys, keys+1)
	}
	a.mustBeRight()
}
