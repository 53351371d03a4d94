package history_test

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/miniserversystem/miniserver/test/system"
)

const accounts = 3 // of a history

// payment asks for a transfer, or to read accounts.
type payment struct {
	key      string // "" to read
	from, to int    // reading: from is the account, or accounts for all of them at once
	amount   int64
}

// paid is the answer to a payment.
type paid struct {
	status, code, body string
	replayed           bool
	balances           [accounts]int64 // of the accounts that were read
}

// money is the state of all accounts.
type money struct {
	balances [accounts]int64
	ended    map[string]paid // by key; the body may not be known yet
}

// first is what the accounts hold at the beginning. The owner's keys to open them are told
// apart by it.
var first = [accounts]int64{100, 60, 20}

// moneyModel says what a transfer may answer. A transfer is of two accounts, so they are
// judged together.
var moneyModel = porcupine.Model{
	Init: func() any { return money{balances: first} },
	Equal: func(a, b any) bool {
		return a.(money).balances == b.(money).balances && maps.Equal(a.(money).ended, b.(money).ended)
	},
	Step:              func(state, input, output any) (bool, any) { return state.(money).step(input.(payment), output) },
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

func (m money) step(in payment, output any) (bool, money) {
	out, answered := output.(paid)
	if in.key == "" {
		want := m.balances
		for i := range want {
			if in.from != accounts && in.from != i {
				want[i] = 0
			}
		}
		return !answered || out.balances == want, m
	}
	prior, ended := m.ended[in.key]
	switch {
	case ended && !answered:
		return true, m
	case ended:
		if prior.body == "" { // the first request was not answered: its retry tells
			prior.body = out.body
		}
		prior.replayed = true
		return out == prior, m.with(in.key, prior)
	case out.status == "IN_PROGRESS": // another request with the key runs
		return true, m
	}
	want := paid{status: "SUCCEEDED", body: out.body}
	switch {
	case out.code == "ROLLED_BACK" || out.code == "TIMEOUT":
		// What became too slow is ended by another request, or by the watchdog.
		want.status, want.code, want.replayed = "FAILED", out.code, out.replayed
	case m.balances[in.from] < in.amount:
		want.status, want.code = "FAILED", "INSUFFICIENT_BALANCE"
	default:
		m.balances[in.from] -= in.amount
		m.balances[in.to] += in.amount
	}
	return !answered || out == want, m.with(in.key, want)
}

// with returns the state in which a key has ended.
func (m money) with(key string, answer paid) money {
	answer.replayed = false
	if prior, ended := m.ended[key]; ended && prior == answer {
		return m
	}
	ended := maps.Clone(m.ended)
	if ended == nil {
		ended = map[string]paid{}
	}
	ended[key] = answer
	m.ended = ended
	return m
}

// treasurer opens the accounts.
var treasurer = map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}}

// Transfers of several clients, with repeated keys, happen as if one came after the other,
// and every read of all accounts finds all of the money.
func TestTransfersAreInOrder(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	operator := people.Token(t, treasurer)
	var all []porcupine.Operation
	for _, seed := range seeds(t) {
		token, opened := openAccounts(s, people, operator, seed)
		r := newRecord(s, seed)
		var sent repeatable[payment]
		r.all(func(c *client) {
			for range each {
				c.pay(token, opened, c.nextPayment(token, &sent))
			}
		})
		r.client(clients).pay(token, opened, payment{from: accounts})
		r.judge(t, moneyModel)
		all = append(all, r.history...)
	}
	shows(t, all, "transfer", func(_ payment, out paid) bool { return out.status == "SUCCEEDED" && !out.replayed })
	shows(t, all, "transfer of more than there is", func(_ payment, out paid) bool { return out.code == "INSUFFICIENT_BALANCE" })
	shows(t, all, "repeated transfer", func(_ payment, out paid) bool { return out.status == "SUCCEEDED" && out.replayed })
}

// openAccounts opens those of a new player.
func openAccounts(s *system.System, people *system.People, operator string, seed uint64) (token string, opened [accounts]string) {
	token = people.Player(s.T, fmt.Sprint("player", seed))
	user := s.UserID(token)
	for i, balance := range first {
		opened[i] = s.Opened(operator, user, strconv.FormatInt(balance, 10))
	}
	return token, opened
}

// nextPayment chooses a request: to read, to repeat one, or a new one.
func (c *client) nextPayment(token string, sent *repeatable[payment]) payment {
	in := payment{from: c.random.IntN(accounts + 1)}
	kind, which := c.random.IntN(10), c.random.IntN(clients*each)
	switch {
	case kind < 3: // reads
	case kind < 6:
		in = sent.one(which, in)
	default:
		in.from %= accounts
		in.to, in.amount = (in.from+1+which%2)%accounts, 1+c.random.Int64N(70)
		in.key = c.s.TransferKey(token)
		sent.add(in)
	}
	return in
}

// One client's transfers are answered as the model says.
func TestTransfersInTurn(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	operator := people.Token(t, treasurer)
	inTurn(t, s, moneyModel, func(c *client, requests int) {
		token, opened := openAccounts(s, people, operator, c.seed)
		var sent repeatable[payment]
		for range requests {
			c.pay(token, opened, c.nextPayment(token, &sent))
		}
		c.pay(token, opened, payment{from: accounts})
	})
}

// pay sends a payment.
func (c *client) pay(token string, opened [accounts]string, in payment) {
	c.observe(in, func() any {
		if in.key != "" {
			a, known := c.ask(http.MethodPost, "/v1/transfers", token,
				fmt.Sprintf(`{"fromAccountId":%s,"toAccountId":%s,"amount":%d}`, opened[in.from], opened[in.to], in.amount), "Idempotency-Key: "+in.key)
			if !known {
				return nil
			}
			return paid{status: a.Text("status"), code: a.Text("errorCode"), body: string(a.Body), replayed: a.Header.Get("Idempotent-Replayed") == "true"}
		}
		path := "/v1/accounts"
		if in.from < accounts {
			path += "/" + opened[in.from]
		}
		a, known := c.ask(http.MethodGet, path, token, "")
		if !known {
			return nil
		}
		found := []any{any(a.JSON(c.s.T))}
		if in.from == accounts {
			found, _ = a.JSON(c.s.T)["accounts"].([]any)
		}
		var out paid
		for _, one := range found {
			account, _ := one.(map[string]any)
			for i, id := range opened {
				if balance, _ := account["balance"].(float64); fmt.Sprint(account["accountId"]) == id {
					out.balances[i] = int64(balance)
				}
			}
		}
		return out
	})
}

// The model of money sees what it is there to see.
func TestMoneyModelNotices(t *testing.T) {
	t.Parallel()
	pay := func(key string, amount int64) payment { return payment{key, 0, 1, amount} }
	all := func(a, b, c int64) step {
		return step{payment{from: accounts}, paid{balances: [accounts]int64{a, b, c}}}
	}
	done := func(body string) paid { return paid{status: "SUCCEEDED", body: body} }
	replay := func(p paid) paid { p.replayed = true; return p }
	short := paid{status: "FAILED", code: "INSUFFICIENT_BALANCE", body: "short"}
	running := paid{status: "IN_PROGRESS", body: "running"}
	notices(t, moneyModel, []step{
		all(100, 60, 20),
		{pay("a", 70), running},
		{pay("a", 70), done("a")},
		all(30, 130, 20),
		{payment{from: 1}, paid{balances: [accounts]int64{0, 130, 0}}},
		{pay("b", 31), short},
		{payment{"c", 1, 0, 100}, done("c")},
		{pay("b", 31), replay(short)},
		{pay("a", 70), replay(done("a"))},
		{pay("d", 30), nil},
		all(100, 60, 20),
		{pay("d", 30), replay(done("d"))},
		all(100, 60, 20),
	}, map[string][]step{
		"a key that applied twice":                  {{pay("a", 10), done("a")}, {pay("a", 10), done("b")}, all(80, 80, 20)},
		"a replay that moves money":                 {{pay("a", 10), done("a")}, {pay("a", 10), replay(done("a"))}, all(80, 80, 20)},
		"another answer to a key":                   {{pay("a", 10), done("a")}, {pay("a", 10), replay(done("b"))}},
		"a failure that becomes a success":          {{pay("a", 200), short}, {payment{"b", 1, 0, 60}, done("b")}, {payment{"c", 2, 0, 20}, done("c")}, {pay("a", 200), done("a")}},
		"money that appears":                        {{pay("a", 10), done("a")}, all(90, 71, 20)},
		"money that vanishes":                       {{pay("a", 10), done("a")}, all(90, 60, 20)},
		"money that moves without being told":       {all(90, 70, 20)},
		"half of a transfer":                        {{pay("a", 10), nil}, all(90, 60, 20)},
		"an account that owes":                      {{pay("a", 101), done("a")}},
		"a refusal of an owner who has enough":      {{pay("a", 100), short}},
		"a failure that moves money":                {{pay("a", 101), short}, all(-1, 161, 20)},
		"a transfer in progress after it has ended": {{pay("a", 10), done("a")}, {pay("a", 10), running}},
		"a transfer that is undone":                 {{pay("a", 10), done("a")}, all(90, 70, 20), all(100, 60, 20)},
	})
}
