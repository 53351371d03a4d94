package matchmaking_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/test/system"
)

// numbered returns n attributes.
func numbered(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"a%d":%d`, i, i))
	}
	return "{" + strings.Join(list, ",") + "}"
}

// A join that cannot be accepted is refused as the caller's fault, with the code for what
// is wrong, and leaves nothing in Redis.
func TestBadJoin(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	s.UserID(alice)
	const malformed, invalid, attributes, missing, badKey = "request_malformed", "request_invalid", "attributes_invalid", "idempotency_key_missing", "idempotency_key_invalid"
	type test struct {
		name, mode, body string
		status           int
		code             string
		headers          []string
	}
	var tests []test
	add := func(name, body string, status int, code string, headers ...string) {
		tests = append(tests, test{name, "rank", body, status, code, headers})
	}
	good := `{"idempotency_key":"k1","attributes":{"skill":1500}}`

	// Modes.
	for mode, code := range map[string]string{
		"ranked": "mode_not_found", "x": "mode_not_found", "CASUAL": "mode_not_found", "Rank": "mode_not_found", "rank%20": "mode_not_found", "%20rank": "mode_not_found",
		"{rank}": "mode_not_found", "rank}:x": "mode_not_found", "rank,casual": "mode_not_found", "ra%2Fnk": "mode_not_found", "rank%0A": "mode_not_found", "*": "mode_not_found",
		"%D0%B3rank": "mode_not_found", "%E2%80%8Brank": "mode_not_found", "mode": "mode_not_found", "0": "mode_not_found", "-1": "mode_not_found", "null": "mode_not_found",
		"r%61nks": "mode_not_found", strings.Repeat("r", 32): "mode_not_found", "rank;x=1": "mode_not_found",
		strings.Repeat("r", 33): invalid, strings.Repeat("rank", 200): invalid, "rank%00": "url_invalid", "%ff": "url_invalid", "%c0%af": "url_invalid",
	} {
		status := map[string]int{"mode_not_found": 404, invalid: 422, "url_invalid": 400}[code]
		tests = append(tests, test{"mode " + mode, mode, good, status, code, nil})
	}

	// The body as a whole.
	add("cut off", good[:len(good)-1], 400, malformed)
	add("two values", good+good, 400, malformed)
	add("data after it", good+` x`, 400, malformed)
	add("a brace after it", good+`}`, 400, malformed)
	add("a comment", good+` // x`, 400, malformed)
	add("NUL after it", good+"\x00", 400, malformed)
	add("broken UTF-8", `{"idempotency_key":"k1","attributes":{"skill":1,"x":"`+"\xff"+`"}}`, 400, malformed)
	add("a lone surrogate", `{"idempotency_key":"k1","attributes":{"skill":1,"x":"\ud800"}}`, 400, malformed)
	add("one name twice", `{"idempotency_key":"k1",`+good[1:], 400, malformed)
	add("one name twice, once escaped", `{"\u0069dempotency_key":"k2",`+good[1:], 400, malformed)
	add("one attribute twice", `{"idempotency_key":"k1","attributes":{"skill":1500,"skill":1500}}`, 400, malformed)
	add("one attribute twice, once escaped", `{"idempotency_key":"k1","attributes":{"skill":1500,"sk\u0069ll":1}}`, 400, malformed)
	for _, field := range []string{`"user_id":"u_1"`, `"mode":"casual"`, `"Party_size":1`, `"partySize":1`, `"Attributes":{}`, `"IDEMPOTENCY_KEY":"k2"`, `"idempotencyKey":"k2"`, `"$schema":"x"`, `"":1`, `"__proto__":{}`} {
		add("unknown field "+field, good[:len(good)-1]+`,`+field+`}`, 422, invalid)
	}
	add("of 64 KiB and a byte", good+strings.Repeat(" ", 64<<10-len(good)+1), 413, "body_too_large")
	add("of 65 KiB", good+strings.Repeat(" ", 65<<10-len(good)), 413, "body_too_large")
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "application/problem+json", "application/json, text/plain", ""} {
		add("sent as "+media, good, 415, "content_type_unsupported", "Content-Type: "+media)
	}

	// The party's size.
	for _, size := range []string{`0`, `2`, `-1`, `"1"`, `1.5`, `true`, `[1]`, `{}`, `1e400`, `1e19`, `99999999999999999999`, `1.0`, `1e0`, `1.0000000000000001`, `""`} {
		add("party_size "+size, `{"idempotency_key":"k1","attributes":{"skill":1500},"party_size":`+size+`}`, 422, invalid)
	}

	// Attributes.
	var wide []string
	for i := range 8 {
		wide = append(wide, fmt.Sprintf(`,"a%d":%q`, i, strings.Repeat("x", 128)))
	}
	for _, value := range []string{`[]`, `"x"`, `1`, `true`, `[{"skill":1500}]`} {
		add("attributes "+value, `{"idempotency_key":"k1","attributes":`+value+`}`, 422, invalid)
	}
	attribute := func(name, text string) {
		add(name, `{"idempotency_key":"k1","attributes":{"skill":1500,`+text+`}}`, 422, attributes)
	}
	for _, value := range []string{
		`null`, `true`, `false`, `[]`, `{}`, `["eu"]`, `{"a":1}`, `1e400`, `-1e400`, `1e16`, `-1000000000000001`,
		`"` + strings.Repeat("x", 129) + `"`, `"` + strings.Repeat("é", 65) + `"`,
		`"\u0000"`, `"a\nb"`, `"a\tb"`, `"\u001b[31m"`, `"\u007f"`, `"\u009b"`, `"\u200b"`, `"\u202e"`, `"\u2028"`, `"\ufeff"`, `"\ue000"`,
	} {
		attribute("region "+value, `"region":`+value)
	}
	for _, name := range []string{"", " ", "a b", "a/b", "a:b", "a\\tb", "ré", "*", "a\\u0000", "{rank}", "a=b", "a&b", strings.Repeat("x", 65), strings.Repeat("x", 1000)} {
		attribute("name "+name, `"`+name+`":1`)
	}
	add("17 attributes", `{"idempotency_key":"k1","attributes":`+numbered(17)+`}`, 422, attributes)
	add("attributes of more than 1 KiB", `{"idempotency_key":"k1","attributes":{"skill":1500`+strings.Join(wide, "")+`}}`, 422, attributes)
	add("1000 attributes", `{"idempotency_key":"k1","attributes":`+numbered(1000)+`}`, 422, attributes)
	for _, value := range []string{``, `"skill":-1`, `"skill":10001`, `"skill":10000.000001`, `"skill":-0.5`, `"skill":"1500"`, `"skill":""`, `"skill":1e15`, `"skill":1e308`, `"skill":1e400`, `"skill":null`, `"skill":true`, `"skill":[1500]`, `"Skill":1500`, `"skill.":1500`} {
		add("ranked by "+value, `{"idempotency_key":"k1","attributes":{`+value+`}}`, 422, attributes)
	}
	add("ranked without attributes", `{"idempotency_key":"k1"}`, 422, attributes)

	// Keys.
	key := func(name, value string, status int, code string, headers ...string) {
		add(name, `{"attributes":{"skill":1500},"idempotency_key":`+value+`}`, status, code, headers...)
	}
	add("no key", `{"attributes":{"skill":1500}}`, 400, missing)
	key("an empty key", `""`, 400, missing)
	key("a key of 256", `"`+strings.Repeat("k", 256)+`"`, 400, badKey)
	for _, value := range []string{`"a\u0000"`, `"a\nb"`, `"\t"`, `"\u001b"`, `"\u007f"`, `"é"`, `"\u200b"`, `"🎁"`} {
		key("the key "+value, value, 400, badKey)
	}
	key("another key in the header", `"k1"`, 400, badKey, "Idempotency-Key: k2")
	key("the header in other letters", `"k1"`, 400, badKey, "Idempotency-Key: K1")
	key("two headers", `"k1"`, 400, badKey, "Idempotency-Key: k1", "Idempotency-Key: k1")
	key("an empty header", `"k1"`, 400, missing, "Idempotency-Key: ")
	key("a header that is too long", `"k1"`, 400, badKey, "Idempotency-Key: "+strings.Repeat("k", 256))
	key("a header whose quote is open", `"k1"`, 400, badKey, `Idempotency-Key: "k1`)
	key("an empty key, and a header", `""`, 400, badKey, "Idempotency-Key: é")
	add("only a bad header", `{"attributes":{"skill":1500}}`, 400, badKey, "Idempotency-Key: é")

	var player string
	for i, test := range tests {
		if i%50 == 0 { // well below a player's quota
			player = people.Player(t, fmt.Sprint("player", i))
			s.UserID(player)
		}
		name := test.name
		if len(name) > 60 {
			name = name[:60]
		}
		t.Run(name, func(t *testing.T) {
			a := s.In(t).Call(http.MethodPost, system.JoinPath(test.mode), player, test.body, test.headers...)
			system.WantProblem(t, a, test.status, test.code)
			text := string(a.Body)
			if len(text) > 4000 || strings.Contains(text, "\\u0000") || strings.Contains(text, "\\u001b") {
				t.Errorf("the answer echoes what was sent: %.200s", text)
			}
			if strings.Contains(text, "json:") || strings.Contains(text, "unmarshal") || strings.Contains(text, " Go ") {
				t.Errorf("the answer reveals Go: %.200s", text)
			}
		})
	}
	for _, path := range []string{"/v1/matchmaking/queues//tickets", "/v1/matchmaking/queues/tickets", "/v1/matchmaking/queues/../tickets/x", "/v1/matchmaking/queues/rank/tickets/", "/v1/matchmaking/queues/rank"} {
		a := s.Call(http.MethodPost, path, alice, good)
		if a.Status != http.StatusNotFound && a.Status != http.StatusMethodNotAllowed {
			t.Errorf("%s: answered %d %s, want 404 or 405", path, a.Status, a.Body)
		}
	}
	system.WantProblem(t, s.Call(http.MethodPost, system.JoinPath("rank")+"?party_size=1", alice, good), http.StatusUnprocessableEntity, invalid)
	system.WantProblem(t, s.Call(http.MethodPost, system.JoinPath("rank"), "", good), http.StatusUnauthorized, "token_missing")
	if left := s.Queues(); left != "" {
		t.Errorf("refused requests left %s", left)
	}
	// Each was refused for its own fault: without one, the join succeeds.
	system.WantStatus(t, s.Call(http.MethodPost, system.JoinPath("rank"), alice, good), http.StatusCreated)
}

// An unreadable body, or a key that is not a string, is refused as that, and not for a
// missing key.
func TestUnreadableJoin(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	good := `{"idempotency_key":"k1"}`
	for body, code := range map[string]string{
		``: "request_malformed", "  \n": "request_malformed", `idempotency_key=k1`: "request_malformed", "\ufeff" + good: "request_malformed", `{'idempotency_key':'k1'}`: "request_malformed",
		`{"idempotency_key":"k1","attributes":{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}`: "request_malformed",
		`[]`: "request_invalid", `[` + good + `]`: "request_invalid", `null`: "request_invalid", `"k1"`: "request_invalid", `1`: "request_invalid",
		`{"idempotency_key":1}`: "request_invalid", `{"idempotency_key":true}`: "request_invalid", `{"idempotency_key":["k1"]}`: "request_invalid", `{"idempotency_key":{"k":1}}`: "request_invalid",
	} {
		t.Run(fmt.Sprintf("%.40s", body), func(t *testing.T) {
			a := s.In(t).Call(http.MethodPost, system.JoinPath("casual"), alice, body, "Content-Type: application/json")
			system.WantProblem(t, a, map[string]int{"request_malformed": 400, "request_invalid": 422}[code], code)
		})
	}
	if left := s.Queues(); left != "" {
		t.Errorf("refused requests left %s", left)
	}
}

// null is not a number, an object or a string, and is refused like everything that the
// documentation does not allow.
func TestJoinWithNull(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "WAKES=false")
	alice := people.Player(t, "alice")
	for body, field := range map[string]string{
		`{"idempotency_key":"k1","party_size":null}`: "party_size", `{"idempotency_key":"k1","attributes":null}`: "attributes", `{"idempotency_key":null}`: "idempotency_key",
	} {
		t.Run(field, func(t *testing.T) {
			a := s.In(t).Call(http.MethodPost, system.JoinPath("casual"), alice, body, "Idempotency-Key: k1")
			system.WantProblem(t, a, http.StatusUnprocessableEntity, "request_invalid")
			if !strings.Contains(string(a.Body), field+" must not be null") {
				t.Errorf("the answer does not name the field: %s", a.Body)
			}
		})
	}
	if left := s.Queues(); left != "" {
		t.Errorf("refused requests left %s", left)
	}
}
