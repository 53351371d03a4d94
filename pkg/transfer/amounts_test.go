package transfer_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

// Amounts at the edges of what is allowed: want is the amount as it is stored, or empty
// if it is refused. Every amount that is accepted is a JSON number.
func TestAmountBoundaries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"0.0001", "0.0001"},
		{"0.00010000000", "0.0001"},
		{"1", "1"},
		{"1.0", "1"},
		{"10", "10"},
		{"100.0100", "100.01"},
		{"999999999999999", "999999999999999"},
		{"999999999999999.9999", "999999999999999.9999"},
		{"999999999999999.99990", "999999999999999.9999"},
		{"9007199254740993", ""},
		{"900719925474099.3", "900719925474099.3"}, // a float64 would round it
		{"1." + strings.Repeat("0", 10_000), "1"},
		{"0", ""},
		{"0.0", ""},
		{"0.0000", ""},
		{"0.00000", ""},
		{"-0", ""},
		{"-0.0", ""},
		{"-1", ""},
		{"+1", ""},
		{"-0.0001", ""},
		{"0.00001", ""},
		{"0.00009", ""},
		{"1.00001", ""},
		{"0." + strings.Repeat("0", 10_000) + "1", ""},
		{"1000000000000000", ""},
		{"10000000000000000", ""},
		{"999999999999999.99999", ""},
		{strings.Repeat("9", 10_000), ""},
		{"1e3", ""},
		{"1E0", ""},
		{"1e0", ""},
		{"1e-4", ""},
		{"0e0", ""},
		{"1e1000000000", ""},
		{`"100"`, ""},
		{"NaN", ""},
		{"Infinity", ""},
		{"-Infinity", ""},
		{"inf", ""},
		{"null", ""},
		{"true", ""},
		{"{}", ""},
		{"[1]", ""},
		{"", ""},
		{"00", ""},
		{"01", ""},
		{"00.1", ""},
		{"007", ""},
		{"1.", ""},
		{".5", ""},
		{".", ""},
		{"1.2.3", ""},
		{"1,5", ""},
		{"1 000", ""},
		{"1_000", ""},
		{" 1", ""},
		{"1 ", ""},
		{"1\n", ""},
		{"\n1", ""},
		{"1\x00", ""},
		{"0x10", ""},
		{"0b1", ""},
		{"1f", ""},
		{"1;", ""},
		{"1--", ""},
		{"１", ""},
		{"٣", ""},
		{"1\u0660", ""},
		{"½", ""},
		{"−1", ""}, // the minus is not ASCII, nor are the digits above
	} {
		name := c.text[:min(len(c.text), 40)]
		a, err := transfer.ParseAmount(c.text)
		if c.want == "" {
			if fault.Of(err) != fault.Invalid || a != (transfer.Amount{}) {
				t.Errorf("%q: parsed as %q, %v; want Invalid", name, a, err)
			}
			continue
		}
		if err != nil || a.String() != c.want || !json.Valid([]byte(a.String())) {
			t.Errorf("%q: %q, %v; want %q", name, a, err, c.want)
		}
	}
}

// IsZero accepts every form of 0, which opens an account without money.
func TestZero(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"0": true, "0.0": true, "0.00000000": true,
		"": false, "-0": false, "00": false, "0.": false, ".0": false, "0e0": false, "0.0001": false, "10": false, `"0"`: false, "null": false,
	} {
		if transfer.IsZero(text) != want {
			t.Errorf("IsZero(%q) is %t, want %t", text, !want, want)
		}
	}
}

// The largest and the smallest amount work, and one step more is refused. The balances
// are set by SQL, as the system's account may owe no more than one account may have.
func TestAmountsAtTheLimit(t *testing.T) {
	s := start(t)
	const most = "999999999999999.9999"
	rich, poor := s.open("u_rich", "0"), s.open("u_poor", "0")
	if _, err := s.pool.Exec(t.Context(), `UPDATE core.account SET balance = CASE account_id WHEN $1 THEN $2::numeric ELSE 0.0001 END`, rich, most); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to     int64
		owner, text  string
		want         string
		rich1, poor1 string
	}{
		{poor, rich, "u_poor", "0.0001", `{"status":"FAILED","errorCode":"BALANCE_LIMIT"}`, most, "0.0001"},
		{poor, rich, "u_poor", "0.0002", `{"status":"FAILED","errorCode":"INSUFFICIENT_BALANCE"}`, most, "0.0001"},
		{rich, poor, "u_rich", "0.0001", "", "999999999999999.9998", "0.0002"},
		{rich, poor, "u_rich", most, `{"status":"FAILED","errorCode":"INSUFFICIENT_BALANCE"}`, "999999999999999.9998", "0.0002"},
		{poor, rich, "u_poor", "0.0002", `{"status":"FAILED","errorCode":"BALANCE_LIMIT"}`, "999999999999999.9998", "0.0002"},
		{poor, rich, "u_poor", "0.0001", "", most, "0.0001"},
		{rich, poor, "u_rich", "0.0001", "", "999999999999999.9998", "0.0002"},
		{rich, poor, "u_rich", "999999999999999.9997", "", "0.0001", "999999999999999.9999"},
	} {
		answer, err := s.Transfer(t.Context(), s.request(c.owner, c.from, c.to, c.text))
		if err != nil || c.want != "" && string(answer.Body) != c.want || c.want == "" && answer.Status != transfer.Succeeded {
			t.Errorf("%s: %s, %v; want %s", c.text, answer.Body, err, c.want)
		}
		if s.balance(rich) != c.rich1 || s.balance(poor) != c.poor1 {
			t.Fatalf("after %s the balances are %s and %s, want %s and %s", c.text, s.balance(rich), s.balance(poor), c.rich1, c.poor1)
		}
	}
}

// Two thousand transfers of every size back and forth end, and change the balances, as
// math/big computes; those that must be refused are among them.
func TestAmountsAreExact(t *testing.T) {
	s := start(t)
	accounts := [2]int64{s.open("u_a", "499999999999999.9999"), s.open("u_b", "499999999999999.9999")}
	half := units("499999999999999.9999")
	balances := [2]*big.Int{new(big.Int).Set(half), new(big.Int).Set(half)}
	limit := units("1000000000000000")
	const rounds, each = 10, 200
	var refused int
	for round := range rounds {
		var ids []uuid.UUID
		var from, to []int64
		var amounts, want []string
		for range each {
			giver := rand.IntN(2)
			text := fmt.Sprint(1 + rand.Int64N(9))
			for range rand.IntN(15) {
				text += fmt.Sprint(rand.IntN(10))
			}
			text += fmt.Sprintf(".%04d", rand.IntN(10_000))[:1+rand.IntN(5)]
			text = strings.TrimSuffix(text, ".")
			ids, amounts = append(ids, id.New()), append(amounts, amount(t, text).String())
			from, to = append(from, accounts[giver]), append(to, accounts[1-giver])
			n := units(text)
			left, grown := new(big.Int).Sub(balances[giver], n), new(big.Int).Add(balances[1-giver], n)
			if left.Sign() < 0 || grown.Cmp(limit) >= 0 {
				want = append(want, transfer.Failed)
				refused++
				continue
			}
			want = append(want, transfer.Succeeded)
			balances[giver], balances[1-giver] = left, grown
		}
		var wrong int
		if err := s.pool.QueryRow(t.Context(), `
			WITH keys AS (
				INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, status, request_hash, attempt, started_at, expires_at)
				SELECT 'c', 'transfer', i::text, 'IN_PROGRESS', sha256(''), i, now(), now() FROM unnest($1::uuid[]) i
				RETURNING idempotency_key_id, attempt
			) SELECT count(*) FROM keys`, ids).Scan(&wrong); err != nil || wrong != each {
			t.Fatal(wrong, err)
		}
		if err := s.pool.QueryRow(t.Context(), `
			SELECT count(*) FILTER (WHERE m.ended_as IS DISTINCT FROM ($5::text[])[m.nth])
			FROM (
				SELECT array_agg(k.idempotency_key_id ORDER BY n) AS keys, array_agg('TRANSFER'::text) AS kinds, array_agg(NULL::uuid) AS none, array_agg(''::text) AS empty
				FROM unnest($1::uuid[]) WITH ORDINALITY AS i(id, n) JOIN integration.idempotency_key k ON k.attempt = i.id
			) k, LATERAL `+tx1+`(k.keys, $1, $1, $1::text[], $2::bigint[], $3::bigint[], $4::text[]::numeric[], k.kinds, k.none, k.empty) m`,
			ids, from, to, amounts, want).Scan(&wrong); err != nil || wrong != 0 {
			t.Fatalf("round %d: %d did not end as math/big computes, %v", round, wrong, err)
		}
		for i, account := range accounts {
			if got := units(s.balance(account)); got.Cmp(balances[i]) != 0 {
				t.Fatalf("round %d: account %d has %s/10000, want %s", round, i, got, balances[i])
			}
		}
	}
	t.Logf("%d of %d were refused", refused, rounds*each)
}

// An amount that is accepted is the number that was sent, more than 0, and has one text.
func FuzzParseAmount(f *testing.F) {
	for _, text := range []string{"1", "0.5", "10000.0", "999999999999999.9999", "1e3", "-1", "00.1", "1."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := transfer.ParseAmount(text)
		if err != nil {
			if fault.Of(err) != fault.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		sent, ok := new(big.Rat).SetString(text)
		stored, stands := new(big.Rat).SetString(a.String())
		if !ok || !stands || sent.Cmp(stored) != 0 || sent.Sign() <= 0 || !json.Valid([]byte(text)) {
			t.Errorf("%q is stored as %q", text, a)
		}
		if again, err := transfer.ParseAmount(a.String()); err != nil || again != a {
			t.Errorf("%q is stored as %q, and that as %q: %v", text, a, again, err)
		}
	})
}
