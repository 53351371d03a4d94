package functions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/kit"
)

// example is a request as the document shows it.
type example struct {
	*documentedOperation
	request
	media string
	path  map[string]string // values of the parameters in the path
}

// example makes the request of an operation's example. given replaces what is in the
// path, headers and fields of the body by name.
func (d *apiDocument) example(o *documentedOperation, media string, given map[string]string) example {
	e := example{documentedOperation: o, media: media, path: map[string]string{}, request: request{method: o.method, path: o.path, header: http.Header{}}}
	for i := range o.parameters {
		p, _ := d.at(fmt.Sprintf("%s/parameters/%d", o.pointer, i))
		name, in := p["name"].(string), p["in"]
		schema := p["schema"].(map[string]any)
		value, ok := given[name]
		if !ok {
			value = fmt.Sprint(schema["const"])
			if examples, _ := schema["examples"].([]any); examples != nil {
				value = fmt.Sprint(examples[0])
			}
		}
		switch {
		case in == "path":
			e.path[name] = value
			e.request.path = strings.ReplaceAll(e.request.path, "{"+name+"}", value)
		case in == "header" && (ok || p["required"] == true || strings.HasPrefix(name, "ce-") && media == "application/json" && value != "<nil>"):
			e.header.Set(name, value)
		}
	}
	content, _ := d.at(o.pointer + "/requestBody/content/" + escapePointer(media))
	if content != nil {
		body, _ := json.Marshal(content["example"]) // it came out of JSON
		for name, value := range given {
			body = regexp.MustCompile(fmt.Sprintf(`"%s":("[^"]*"|[0-9.]+)`, name)).ReplaceAll(body, []byte(`"`+name+`":`+value))
		}
		e.body = string(body)
		e.header.Set("Content-Type", media)
	}
	return e
}

// each calls do with all operations, for each media type of its body, "" for none.
func (d *apiDocument) each(do func(o *documentedOperation, media string)) {
	for _, key := range slices.Sorted(maps.Keys(d.operations)) {
		o := d.operations[key]
		content, _ := d.at(o.pointer + "/requestBody/content")
		if content == nil {
			do(o, "")
		}
		for _, media := range slices.Sorted(maps.Keys(content)) {
			do(o, media)
		}
	}
}

// statuses that the document has of an operation.
func (d *apiDocument) statuses(o *documentedOperation) []string {
	responses, _ := d.at(o.pointer + "/responses")
	return slices.Sorted(maps.Keys(responses))
}

// routeOf is what the registry says of an operation.
func routeOf(id string) fn.Route {
	for _, f := range functions.All {
		for _, route := range f.Routes {
			if route.ID == id {
				return route
			}
		}
	}
	return fn.EventsRoute
}

// Every example in the document is one by its schema.
func TestExamplesFit(t *testing.T) {
	t.Parallel()
	d, err := openAPI()
	must(t, err)
	checked := 0
	var walk func(pointer string, value any)
	walk = func(pointer string, value any) {
		check := func(schema string, example any) {
			checked++
			if why := d.fits(schema, example); why != "" {
				t.Errorf("%s: %v: %s", pointer, example, why)
			}
		}
		switch value := value.(type) {
		case []any:
			for i, item := range value {
				walk(fmt.Sprintf("%s/%d", pointer, i), item)
			}
		case map[string]any:
			if one, ok := value["example"]; ok && value["schema"] != nil {
				check(pointer+"/schema", one)
			}
			switch many := value["examples"].(type) {
			case []any: // of a schema
				check(pointer, many[0])
			case map[string]any: // of a body
				for _, one := range many {
					check(pointer+"/schema", one.(map[string]any)["value"])
				}
			}
			for name, item := range value {
				if name != "example" && name != "examples" {
					walk(pointer+"/"+escapePointer(name), item)
				}
			}
		}
	}
	walk("", d.whole)
	if checked < 100 {
		t.Errorf("only %d examples", checked)
	}
	// A body without an example, or a pattern that other languages cannot read, is not
	// documented.
	text, err := fn.OpenAPI(functions.All)
	must(t, err)
	for _, pattern := range regexp.MustCompile(`"pattern": ".*`).FindAllString(string(text), -1) {
		if strings.Contains(pattern, `\\p`) || strings.Contains(pattern, `\\x{`) || strings.Contains(pattern, `(?`) {
			t.Errorf("only Go reads %s", pattern)
		}
	}
	d.each(func(o *documentedOperation, media string) {
		if content, _ := d.at(o.pointer + "/requestBody/content/" + escapePointer(media)); media != "" && content["example"] == nil {
			t.Errorf("%s has no example of its body", o.id)
		}
	})
}

// The document is what is done: the example of every operation is taken, each refusal
// that it has can be had, and nothing is answered that it has not (documented sees to
// that). Only 500, which is a bug, is not provoked.
func TestDocumentIsWhatIsDone(t *testing.T) {
	t.Parallel()
	d, err := openAPI()
	must(t, err)
	all := newWorld(t)
	s := all.system
	seen := []*answers{s.seen}

	var slow sync.WaitGroup // a body that does not come takes five seconds
	d.each(func(o *documentedOperation, media string) {
		t.Run(o.id+" "+media, func(t *testing.T) {
			w := all.in(t)
			e := d.example(o, media, w.given[o.id])
			e.token = w.caller(o.id)
			if slices.Contains(d.statuses(o), "408") {
				slow.Go(func() { all.withoutBody(e) })
			}
			w.refusals(d, e)
			if o.id == "stream-my-notifications" {
				w.follow(e.token).hangUp()
				eventually(t, 5*time.Second, "the stream ends", func() bool { return s.seen.saw(o.id, http.StatusOK) })
				return
			}
			if a := w.send(e.request); a.status >= http.StatusMultipleChoices {
				t.Fatalf("the example is not taken: %d %s", a.status, a.body)
			}
			w.again(d, e)
		})
	})
	t.Run("transfers that run", func(t *testing.T) { all.in(t).whileLocked(d) })
	for _, other := range []*system{all.limited(d), all.withoutIssuer(d), all.withoutFunctions(d)} {
		seen = append(seen, other.seen)
	}
	slow.Wait()
	for _, o := range d.operations {
		for _, status := range d.statuses(o) {
			n, err := strconv.Atoi(status)
			must(t, err)
			if n != http.StatusInternalServerError && !slices.ContainsFunc(seen, func(a *answers) bool { return a.saw(o.id, n) }) {
				t.Errorf("%s: nothing was answered with %s, which the document has", o.id, status)
			}
		}
	}
}

// world is a system in which there is what the examples are about.
type world struct {
	*system
	issuer                  *codeIssuer
	alice, operator, writer string                       // access tokens
	browser                 *visitor                     // alice's
	given                   map[string]map[string]string // what replaces examples, by operation
	payments                [2]string                    // transfers that may be reversed
	accounts                [2]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	i := newCodeIssuer(t)
	w := &world{issuer: i, system: start(t, kit.Listen(t), "WAKES=false", "OIDC_ISSUER="+i.url)}
	token := func(subject string, roles ...string) string {
		return i.fresh(t, subject, map[string]any{"exp": time.Now().Add(5 * time.Minute).Unix(), "realm_access": map[string]any{"roles": roles}})
	}
	w.alice, w.operator, w.writer = token("alice", "player"), token("olga", "operator"), token("shop", "entitlement-writer")
	w.system.writer = w.writer
	w.browser = w.visitor()
	w.browser.signIn(i, "/", signingIn{subject: "alice"})
	alice := w.userID(w.alice)
	wantStatus(t, w.grant("g0", alice, "item1"), http.StatusOK)
	wantStatus(t, w.grant("g1", "u_123", "item1"), http.StatusOK)
	w.tick("relay")
	w.tick("notify")
	w.accounts = [2]string{w.opened(w.operator, alice, "1000"), w.opened(w.operator, "u_123", "0")}
	for n := range w.payments {
		w.payments[n], _ = w.pay(w.alice, w.transferKey(w.alice), w.accounts[0], w.accounts[1], "1").json(t)["transferId"].(string)
	}
	list := w.call(http.MethodGet, "/v1/me/notifications", w.alice, "").json(t)["notifications"].([]any)
	ticket := map[string]string{"ticket_id": w.joined(w.alice, "rank", "k0", `{"skill":1}`)}
	account := map[string]string{"account_id": w.accounts[0]}
	w.given = map[string]map[string]string{
		"list-entitlements":      {"user_id": alice},
		"get-entitlement":        {"user_id": alice},
		"mark-notification-read": {"notification_id": list[0].(map[string]any)["notification_id"].(string)},
		"get-money-account":      account,
		"list-account-transfers": account,
		"list-account-ledger":    account,
		"get-ticket":             ticket,
		"cancel-ticket":          ticket,
		"transfer":               {"Idempotency-Key": w.transferKey(w.alice), "fromAccountId": w.accounts[0], "toAccountId": w.accounts[1]},
		"get-transfer":           {"transfer_id": w.payments[0]},
		"reverse-transfer":       {"Idempotency-Key": w.transferKey(w.operator), "transfer_id": w.payments[0]},
		"link-identity":          {"access_token": `"` + token("alice at another", "player") + `"`},
	}
	return w
}

func (w *world) in(t *testing.T) *world {
	copied, browser := *w, *w.browser
	copied.system = w.system.in(t)
	browser.s = copied.system
	copied.browser = &browser
	return &copied
}

// caller is the token of somebody who may.
func (w *world) caller(id string) string {
	switch roles := routeOf(id).Roles; {
	case slices.Contains(roles, "operator"):
		return w.operator
	case slices.Contains(roles, "entitlement-writer"):
		return w.writer
	}
	return w.alice
}

// refusals provokes the refusals that all operations have alike.
func (w *world) refusals(d *apiDocument, e example) {
	w.t.Helper()
	try := func(status int, change func(r *request)) {
		w.t.Helper()
		r := e.request
		r.header = e.header.Clone()
		change(&r)
		wantStatus(w.t, w.send(r), status)
	}
	has := func(status string) bool { return slices.Contains(d.statuses(e.documentedOperation), status) }
	try(http.StatusUnauthorized, func(r *request) { r.token = "" })
	try(http.StatusBadRequest, func(r *request) { r.path += "?%zz" })
	try(http.StatusUnprocessableEntity, func(r *request) { r.path += "?unknown=1" })
	if routeOf(e.id).Roles != nil {
		try(http.StatusForbidden, func(r *request) { r.token = w.alice })
	}
	if e.request.method != http.MethodGet {
		try(http.StatusForbidden, func(r *request) { r.token = ""; r.header.Set("Cookie", w.browser.cookieHeader()) })
	}
	if has("413") {
		try(http.StatusRequestEntityTooLarge, func(r *request) { r.body += strings.Repeat(" ", fn.MaxBodyBytes+1) })
	}
	if e.media != "" {
		try(http.StatusUnsupportedMediaType, func(r *request) { r.header.Set("Content-Type", "text/plain") })
		try(http.StatusBadRequest, func(r *request) { r.body = "{" })
		try(http.StatusUnprocessableEntity, func(r *request) { r.body = strings.Replace(r.body, "{", `{"unknown":{},`, 1) })
	}
	if has("412") {
		try(http.StatusPreconditionFailed, func(r *request) { r.header.Set("If-Match", `"999"`) })
	}
	if !has("404") {
		return
	}
	try(http.StatusNotFound, func(r *request) {
		switch e.id {
		case "transfer":
			r.body = strings.Replace(r.body, `"toAccountId":`, `"toAccountId":9`, 1)
		case "stream-my-notifications":
			r.path += "?ticket_id=casual_01h455vb4pex5vsknk084sn02q"
		default:
			for name, value := range e.path {
				unknown := map[string]string{"account_id": "999999"}[name]
				if unknown == "" {
					unknown = value[:len(value)-1] + string('0'+'1'-value[len(value)-1]%2) // of the same form
				}
				r.path = strings.Replace(r.path, "/"+value, "/"+unknown, 1)
			}
		}
	})
}

// again provokes what comes of a request after the example was taken: its key used for
// another one, or what it was about being over.
func (w *world) again(d *apiDocument, e example) {
	w.t.Helper()
	if !slices.Contains(d.statuses(e.documentedOperation), "409") {
		return
	}
	r := e.request
	switch e.id {
	case "reverse-transfer":
		r.path = strings.Replace(r.path, w.payments[0], w.payments[1], 1)
	case "cancel-ticket":
		carol, dave := w.issuer.fresh(w.t, "carol", nil), w.issuer.fresh(w.t, "dave", nil)
		matched := w.joined(carol, "casual", "k", `{"region":"x"}`)
		w.joined(dave, "casual", "k", `{"region":"x"}`)
		w.tick("match")
		r.path, r.token = ticketPath(matched), carol
		if w.readTicket(carol, matched)["status"] != "MATCHED" { // with the ticket of another example
			r.path, r.token = ticketPath(w.joined(dave, "casual", "k", `{"region":"x"}`)), dave
		}
	case "link-identity":
		bob := w.issuer.fresh(w.t, "bob", nil)
		w.userID(bob)
		r.body = `{"access_token":"` + bob + `"}`
	case "transfer":
		r.body = strings.Replace(r.body, "30.0001", "30", 1)
	default:
		r.body = strings.NewReplacer(`"item1"`, `"item2"`, `"EUR"`, `"USD"`, `1500`, `1600`).Replace(r.body)
	}
	wantStatus(w.t, w.send(r), http.StatusConflict)
}

// withoutBody says that a body comes, and sends none.
func (w *world) withoutBody(e example) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n", e.request.method, e.request.path, e.token)
	_ = e.header.Write(conn)
	_, _ = io.WriteString(conn, "\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.t.Error(err)
		return
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		w.t.Errorf("%s without its body: %s", e.id, response.Status)
	}
}

// whileLocked sends transfers twice while the first has to wait.
func (w *world) whileLocked(d *apiDocument) {
	w.t.Helper()
	for _, id := range []string{"transfer", "reverse-transfer"} {
		given := maps.Clone(w.given[id])
		var o *documentedOperation
		for _, one := range d.operations {
			if one.id == id {
				o = one
			}
		}
		token := w.caller(id)
		given["Idempotency-Key"] = w.transferKey(token)
		media := "application/json"
		if id == "reverse-transfer" {
			media, given["transfer_id"] = "", w.payments[1]
		}
		e := d.example(o, media, given)
		e.token = token
		locked, err := w.pool.Begin(context.Background())
		must(w.t, err)
		_, err = locked.Exec(context.Background(), `SELECT FROM core.account WHERE account_id = `+w.accounts[0]+` FOR UPDATE`)
		must(w.t, err)
		var first sync.WaitGroup
		first.Go(func() {
			if a := w.send(e.request); a.status != http.StatusOK {
				w.t.Errorf("%s: %d %s", id, a.status, a.body)
			}
		})
		eventually(w.t, 5*time.Second, id+" runs", func() bool {
			return w.count(`SELECT count(*) FROM integration.idempotency_key WHERE status = 'IN_PROGRESS'`) == 1
		})
		second := w.send(e.request)
		must(w.t, locked.Rollback(context.Background()))
		first.Wait()
		wantStatus(w.t, second, http.StatusAccepted)
	}
}

// limited lets nobody ask twice.
func (w *world) limited(d *apiDocument) *system {
	s := start(w.t, kit.Listen(w.t), "WAKES=false", "OIDC_ISSUER="+w.issuer.url, "LIMIT_ANONYMOUS_RATE=1", "LIMIT_ANONYMOUS_BURST=1")
	d.each(func(o *documentedOperation, media string) {
		flood(w.t, func() answer { return s.send(d.example(o, media, nil).request) })
	})
	return s
}

// withoutIssuer cannot tell who calls.
func (w *world) withoutIssuer(d *apiDocument) *system {
	s := start(w.t, kit.Listen(w.t), "WAKES=false", "OIDC_ISSUER=http://127.0.0.1:1")
	d.each(func(o *documentedOperation, media string) {
		e := d.example(o, media, nil)
		e.token = w.alice
		wantProblem(w.t, s.send(e.request), http.StatusServiceUnavailable, "unavailable")
	})
	return s
}

// withoutFunctions is behind a proxy that says of each that it takes too long.
func (w *world) withoutFunctions(d *apiDocument) *system {
	s := start(w.t, kit.Listen(w.t), "WAKES=false", "OIDC_ISSUER="+w.issuer.url)
	asked := ""
	for name, f := range s.runtime.Here {
		s.runtime.Here[name] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			// Who calls is found out first.
			if asked == r.Method+" "+r.URL.Path {
				http.Error(rw, "too slow", http.StatusGatewayTimeout)
				return
			}
			f.ServeHTTP(rw, r)
		})
	}
	d.each(func(o *documentedOperation, media string) {
		if !slices.Contains(d.statuses(o), "504") {
			return
		}
		e := d.example(o, media, nil)
		e.token = w.caller(o.id)
		at, err := url.Parse(e.request.path)
		must(w.t, err)
		asked = o.method + " " + at.Path
		wantProblem(w.t, s.send(e.request), http.StatusGatewayTimeout, "timeout")
	})
	return s
}
