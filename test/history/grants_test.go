package history_test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/miniserversystem/miniserver/test/system"
)

// change asks to grant or revoke an item, or to read it.
type change struct {
	item, path string // system.GrantsPath, system.RevokesPath, or "" to read
	key        string
	ifMatch    int64 // 0 for any version
}

// owned is the answer to a change.
type owned struct {
	status   int
	version  int64
	now      string // the item's status
	body     string
	replayed bool
}

// item is the state of one item of one user.
type item struct {
	version int64 // 0 if it never was changed
	now     string
	answers map[string]owned // by key; the body may not be known yet
}

// itemModel says what a change may answer. The items are independent of each other.
var itemModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byItem := map[string][]porcupine.Operation{}
		for _, o := range history {
			name := o.Input.(change).item
			byItem[name] = append(byItem[name], o)
		}
		for _, part := range byItem {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return item{} },
	Equal: func(a, b any) bool {
		one, two := a.(item), b.(item)
		return one.version == two.version && one.now == two.now && maps.Equal(one.answers, two.answers)
	},
	Step: func(state, input, output any) (bool, any) {
		return state.(item).step(input.(change), output)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

func (i item) step(in change, output any) (bool, item) {
	out, answered := output.(owned)
	if in.path == "" {
		if i.version == 0 {
			return !answered || out.status == http.StatusNotFound, i
		}
		return !answered || out.status == http.StatusOK && out.version == i.version && out.now == i.now, i
	}
	if prior, used := i.answers[in.key]; used {
		if !answered {
			return true, i
		}
		if prior.body == "" { // the first request was not answered: its retry tells
			prior.body = out.body
		}
		prior.replayed = true
		return out == prior, i.with(in.key, prior)
	}
	if in.ifMatch != 0 && in.ifMatch != i.version {
		return !answered || out.status == http.StatusPreconditionFailed, i
	}
	i.version, i.now = i.version+1, "ACTIVE"
	if in.path == system.RevokesPath {
		i.now = "REVOKED"
	}
	want := owned{http.StatusOK, i.version, i.now, out.body, false}
	return !answered || out == want, i.with(in.key, want)
}

// with returns the state that also has the answer to a key.
func (i item) with(key string, answer owned) item {
	answer.replayed = false
	if i.answers[key] == answer {
		return i
	}
	answers := maps.Clone(i.answers)
	if answers == nil {
		answers = map[string]owned{}
	}
	answers[key] = answer
	i.answers = answers
	return i
}

// Grants and revokes of several clients, with repeated keys and versions that were read
// before, happen as if one came after the other.
func TestGrantsAreInOrder(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	var all []porcupine.Operation
	for _, seed := range seeds(t) {
		r := newRecord(s, seed)
		user := fmt.Sprint("u_", seed)
		var sent repeatable[change]
		r.all(func(c *client) {
			seen := map[string]int64{}
			for n := range each {
				c.change(user, c.nextChange(n, &sent, seen), seen)
			}
		})
		last := r.client(clients)
		for n := range 3 {
			last.change(user, change{item: system.SKU(n)}, map[string]int64{})
		}
		r.judge(t, itemModel)
		all = append(all, r.history...)
	}
	shows(t, all, "change of a version that was read", func(in change, out owned) bool {
		return in.ifMatch != 0 && out.status == http.StatusOK && !out.replayed
	})
	shows(t, all, "change of a version that is past", func(_ change, out owned) bool { return out.status == http.StatusPreconditionFailed })
	shows(t, all, "repeated change", func(_ change, out owned) bool { return out.replayed })
}

// nextChange chooses the client's nth request: to read, to repeat one, or a new one. seen
// are the versions that the client was told.
func (c *client) nextChange(n int, sent *repeatable[change], seen map[string]int64) change {
	in := change{item: system.SKU(c.random.IntN(3))}
	kind, which := c.random.IntN(10), c.random.IntN(clients*each)
	switch {
	case kind < 3: // reads
	case kind < 6:
		in = sent.one(which, in)
	default:
		in.path = []string{system.GrantsPath, system.RevokesPath}[which%2]
		in.key = fmt.Sprintf("h%d-%d-%d", c.seed, c.id, n)
		if kind < 8 {
			in.ifMatch = seen[in.item]
		}
		sent.add(in)
	}
	return in
}

// One client's changes are answered as the model says.
func TestGrantsInTurn(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	inTurn(t, s, itemModel, func(c *client, requests int) {
		var sent repeatable[change]
		seen := map[string]int64{}
		for n := range requests {
			c.change(fmt.Sprint("u_", c.seed), c.nextChange(n, &sent, seen), seen)
		}
	})
}

// change sends a change, and remembers the version that is answered.
func (c *client) change(user string, in change, seen map[string]int64) {
	c.observe(in, func() any {
		var a system.Answer
		var known bool
		if in.path == "" {
			a, known = c.ask(http.MethodGet, "/v1/users/"+user+"/entitlements/"+in.item, c.s.Writer, "")
		} else {
			headers := []string{"Idempotency-Key: " + in.key}
			if in.ifMatch != 0 {
				headers = append(headers, fmt.Sprintf(`If-Match: "%d"`, in.ifMatch))
			}
			a, known = c.ask(http.MethodPost, in.path, c.s.Writer, system.ChangeBody(user, in.item, "purchase", "p_"+in.key), headers...)
		}
		if !known {
			return nil
		}
		out := owned{status: a.Status, now: a.Text("status"), replayed: a.Header.Get("Idempotent-Replayed") == "true"}
		if a.Status != http.StatusOK {
			return owned{status: a.Status}
		}
		version, _ := a.JSON(c.s.T)["version"].(float64)
		out.version, seen[in.item] = int64(version), int64(version)
		if in.path != "" {
			out.body = string(a.Body)
		}
		return out
	})
}

// The model of an item sees what it is there to see.
func TestItemModelNotices(t *testing.T) {
	t.Parallel()
	grant := func(key string, ifMatch int64) change { return change{"item1", system.GrantsPath, key, ifMatch} }
	revoke := func(key string, ifMatch int64) change { return change{"item1", system.RevokesPath, key, ifMatch} }
	read := change{item: "item1"}
	at := func(version int64, now, body string, replayed bool) owned {
		return owned{http.StatusOK, version, now, body, replayed}
	}
	refused := owned{status: http.StatusPreconditionFailed}
	first := step{grant("a", 0), at(1, "ACTIVE", "1", false)}
	second := step{revoke("b", 1), at(2, "REVOKED", "2", false)}
	replay := step{grant("a", 0), at(1, "ACTIVE", "1", true)}
	notices(t, itemModel, []step{
		{read, owned{status: http.StatusNotFound}},
		first,
		{read, at(1, "ACTIVE", "", false)},
		{revoke("b", 2), refused},
		second, replay,
		{revoke("c", 1), refused},
		{grant("d", 0), nil},
		{read, at(3, "ACTIVE", "", false)},
		{grant("d", 0), at(3, "ACTIVE", "3", true)},
	}, map[string][]step{
		"a key that applied twice":               {first, {grant("a", 0), at(2, "ACTIVE", "2", false)}},
		"another answer to a key":                {first, second, {grant("a", 0), at(1, "ACTIVE", "other", true)}},
		"a replay of a key that changed":         {first, replay, {read, at(2, "ACTIVE", "", false)}},
		"a replay of what never was":             {{grant("a", 0), at(1, "ACTIVE", "1", true)}},
		"a version that goes back":               {first, second, {read, at(1, "ACTIVE", "", false)}},
		"a version that is left out":             {first, {grant("b", 0), at(3, "ACTIVE", "3", false)}},
		"a version that is given twice":          {first, {grant("b", 0), at(1, "ACTIVE", "2", false)}},
		"a change that is lost":                  {first, {read, owned{status: http.StatusNotFound}}},
		"a change of another version":            {first, second, {grant("c", 1), at(3, "ACTIVE", "3", false)}},
		"a refusal of the right version":         {first, {revoke("b", 1), refused}},
		"a refusal that changes something":       {first, {revoke("b", 5), refused}, {read, at(2, "REVOKED", "", false)}},
		"a grant that revokes":                   {{grant("a", 0), at(1, "REVOKED", "1", false)}},
		"an unanswered grant that applied twice": {{grant("a", 0), nil}, {read, at(1, "ACTIVE", "", false)}, {read, at(2, "ACTIVE", "", false)}},
	})
}
