package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// world is a system with everything that the examples refer to.
type world struct {
	*system.System
	issuer                  *system.CodeIssuer
	alice, operator, writer string                       // access tokens
	browser                 *system.Visitor              // alice's
	given                   map[string]map[string]string // replaces values of the examples, by operation
	payments                [2]string                    // transfers that can be reversed
	accounts                [2]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	i := system.NewCodeIssuer(t)
	w := &world{issuer: i, System: system.StartOn(t, kit.Listen(t), "WAKES=false", "OIDC_ISSUER="+i.URL)}
	token := func(subject string, roles ...string) string {
		return i.Fresh(t, subject, map[string]any{"exp": time.Now().Add(5 * time.Minute).Unix(), "realm_access": map[string]any{"roles": roles}})
	}
	w.alice, w.operator, w.writer = token("alice", "player"), token("olga", "operator"), token("shop", "entitlement-writer")
	w.System.Writer = w.writer
	w.browser = w.Visitor()
	w.browser.SignIn(i, "/", system.SigningIn{Subject: "alice"})
	alice := w.UserID(w.alice)
	system.WantStatus(t, w.Grant("g0", alice, "item1"), http.StatusOK)
	system.WantStatus(t, w.Grant("g1", "u_123", "item1"), http.StatusOK)
	w.Tick("relay")
	w.Tick("notify")
	w.accounts = [2]string{w.Opened(w.operator, alice, "1000"), w.Opened(w.operator, "u_123", "0")}
	for n := range w.payments {
		w.payments[n], _ = w.Pay(w.alice, w.TransferKey(w.alice), w.accounts[0], w.accounts[1], "1").JSON(t)["transferId"].(string)
	}
	// What operators mend: u_123's notification.
	_, err := w.Pool.Exec(t.Context(), `UPDATE notification.notifications SET status = 'FAILED', finished_at = now(), attempt_count = 10, last_error = 'the endpoint answered 503' WHERE user_id = 'u_123'`)
	kit.Must(t, err)
	begun := w.Call(http.MethodPost, "/v1/operations/acts", w.operator, `{"kind":"requeue","queue":"notifications","reason":"INC-42","at_most":1}`, "Idempotency-Key: a0")
	system.WantStatus(t, begun, http.StatusCreated)
	act := map[string]string{"act_id": begun.Text("act_id")}
	list := w.Call(http.MethodGet, "/v1/me/notifications", w.alice, "").JSON(t)["notifications"].([]any)
	ticket := map[string]string{"ticket_id": w.Joined(w.alice, "rank", "k0", `{"skill":1}`)}
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
		"transfer":               {"Idempotency-Key": w.TransferKey(w.alice), "fromAccountId": w.accounts[0], "toAccountId": w.accounts[1]},
		"get-transfer":           {"transfer_id": w.payments[0]},
		"reverse-transfer":       {"Idempotency-Key": w.TransferKey(w.operator), "transfer_id": w.payments[0]},
		"list-letters":           {"queue": "notification-letters"},
		"get-act":                act,
		"stop-act":               act,
		"resume-act":             act,
		"link-identity":          {"access_token": `"` + token("alice at another", "player") + `"`},
	}
	return w
}

func (w *world) in(t *testing.T) *world {
	copied, browser := *w, *w.browser
	copied.System = w.System.In(t)
	browser.S = copied.System
	copied.browser = &browser
	return &copied
}

// caller returns the token of somebody who may use the operation.
func (w *world) caller(id string) string {
	switch roles := routeOf(id).Roles; {
	case slices.Contains(roles, "operator"):
		return w.operator
	case slices.Contains(roles, "entitlement-writer"):
		return w.writer
	}
	return w.alice
}

// refusals provokes the refusals that are common to all operations.
func (w *world) refusals(d *system.Document, e example) {
	w.T.Helper()
	try := func(status int, change func(r *system.Request)) {
		w.T.Helper()
		r := e.Request
		r.Header = e.Header.Clone()
		change(&r)
		system.WantStatus(w.T, w.Send(r), status)
	}
	has := func(status string) bool { return slices.Contains(statuses(d, e.Operation), status) }
	try(http.StatusUnauthorized, func(r *system.Request) { r.Token = "" })
	try(http.StatusBadRequest, func(r *system.Request) { r.Path += "?%zz" })
	try(http.StatusUnprocessableEntity, func(r *system.Request) { r.Path += "?unknown=1" })
	if len(routeOf(e.ID).ShownTo) > 0 {
		try(http.StatusNotFound, func(r *system.Request) { r.Token = w.alice })
	} else if routeOf(e.ID).Roles != nil {
		try(http.StatusForbidden, func(r *system.Request) { r.Token = w.alice })
	}
	if e.Request.Method != http.MethodGet {
		try(http.StatusForbidden, func(r *system.Request) { r.Token = ""; r.Header.Set("Cookie", w.browser.CookieHeader()) })
	}
	if has("413") {
		try(http.StatusRequestEntityTooLarge, func(r *system.Request) { r.Body += strings.Repeat(" ", fn.MaxBodyBytes+1) })
	}
	if e.media != "" {
		try(http.StatusUnsupportedMediaType, func(r *system.Request) { r.Header.Set("Content-Type", "text/plain") })
		try(http.StatusBadRequest, func(r *system.Request) { r.Body = "{" })
		try(http.StatusUnprocessableEntity, func(r *system.Request) { r.Body = strings.Replace(r.Body, "{", `{"unknown":{},`, 1) })
	}
	if has("412") {
		try(http.StatusPreconditionFailed, func(r *system.Request) { r.Header.Set("If-Match", `"999"`) })
	}
	if !has("404") || len(routeOf(e.ID).ShownTo) > 0 && !slices.Contains(routeOf(e.ID).Refuses, http.StatusNotFound) {
		return
	}
	try(http.StatusNotFound, func(r *system.Request) {
		switch e.ID {
		case "transfer":
			r.Body = strings.Replace(r.Body, `"toAccountId":`, `"toAccountId":9`, 1)
		case "stream-my-notifications":
			r.Path += "?ticket_id=casual_01h455vb4pex5vsknk084sn02q"
		default:
			for name, value := range e.path {
				unknown := map[string]string{"account_id": "999999"}[name]
				if unknown == "" {
					unknown = value[:len(value)-1] + string('0'+'1'-value[len(value)-1]%2) // of the same form
				}
				r.Path = strings.Replace(r.Path, "/"+value, "/"+unknown, 1)
			}
		}
	})
}

// again provokes the conflicts after the example was accepted: its key with another
// request, a ticket that is matched, an identity that is taken.
func (w *world) again(d *system.Document, e example) {
	w.T.Helper()
	if !slices.Contains(statuses(d, e.Operation), "409") {
		return
	}
	r := e.Request
	switch e.ID {
	case "reverse-transfer":
		r.Path = strings.Replace(r.Path, w.payments[0], w.payments[1], 1)
	case "cancel-ticket":
		carol, dave := w.issuer.Fresh(w.T, "carol", nil), w.issuer.Fresh(w.T, "dave", nil)
		matched := w.Joined(carol, "casual", "k", `{"region":"x"}`)
		w.Joined(dave, "casual", "k", `{"region":"x"}`)
		w.Tick("match")
		r.Path, r.Token = system.TicketPath(matched), carol
		if w.ReadTicket(carol, matched)["status"] != "MATCHED" { // matched with another example's ticket
			r.Path, r.Token = system.TicketPath(w.Joined(dave, "casual", "k", `{"region":"x"}`)), dave
		}
	case "link-identity":
		bob := w.issuer.Fresh(w.T, "bob", nil)
		w.UserID(bob)
		r.Body = `{"access_token":"` + bob + `"}`
	case "transfer":
		r.Body = strings.Replace(r.Body, "30.0001", "30", 1)
	case "export-user":
		r.Body = strings.Replace(r.Body, "the person asked", "she asked", 1)
	case "begin-act":
		r.Body = strings.Replace(r.Body, "INC-42", "INC-43", 1)
	case "stop-act", "resume-act":
		ended := w.Call(http.MethodPost, "/v1/operations/acts", w.operator, `{"kind":"requeue","queue":"notifications","reason":"over","at_most":1}`, "Idempotency-Key: "+e.ID).Text("act_id")
		_, err := w.Pool.Exec(w.T.Context(), `UPDATE notification.acts SET status = 'DONE', finished_at = now() WHERE reason = 'over'`)
		kit.Must(w.T, err)
		r.Path = strings.Replace(r.Path, e.path["act_id"], ended, 1)
	default:
		r.Body = strings.NewReplacer(`"item1"`, `"item2"`, `"EUR"`, `"USD"`, `1500`, `1600`).Replace(r.Body)
	}
	system.WantStatus(w.T, w.Send(r), http.StatusConflict)
}

// withoutBody announces a body and sends none.
func (w *world) withoutBody(e example) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		w.T.Error(err)
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n", e.Request.Method, e.Request.Path, e.Token)
	_ = e.Header.Write(conn)
	_, _ = io.WriteString(conn, "\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.T.Error(err)
		return
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		w.T.Errorf("%s without its body: answered %s, want 408", e.ID, response.Status)
	}
}

// whileLocked sends each transfer twice while the first waits for a lock.
func (w *world) whileLocked(d *system.Document) {
	w.T.Helper()
	for _, id := range []string{"transfer", "reverse-transfer"} {
		given := maps.Clone(w.given[id])
		var o *system.Operation
		for _, one := range d.Operations {
			if one.ID == id {
				o = one
			}
		}
		token := w.caller(id)
		given["Idempotency-Key"] = w.TransferKey(token)
		media := "application/json"
		if id == "reverse-transfer" {
			media, given["transfer_id"] = "", w.payments[1]
		}
		e := exampleOf(d, o, media, given)
		e.Token = token
		locked, err := w.Pool.Begin(context.Background())
		kit.Must(w.T, err)
		_, err = locked.Exec(context.Background(), `SELECT FROM core.account WHERE account_id = `+w.accounts[0]+` FOR UPDATE`)
		kit.Must(w.T, err)
		var first sync.WaitGroup
		first.Go(func() {
			if a := w.Send(e.Request); a.Status != http.StatusOK {
				w.T.Errorf("%s: answered %d %s, want 200", id, a.Status, a.Body)
			}
		})
		kit.Eventually(w.T, id+" runs", func() bool {
			return w.Count(`SELECT count(*) FROM integration.idempotency_key WHERE status = 'IN_PROGRESS'`) == 1
		})
		second := w.Send(e.Request)
		kit.Must(w.T, locked.Rollback(context.Background()))
		first.Wait()
		system.WantStatus(w.T, second, http.StatusAccepted)
	}
}

// limited provokes every operation's rate limit.
func (w *world) limited(d *system.Document) *system.System {
	s := system.StartOn(w.T, kit.Listen(w.T), "WAKES=false", "OIDC_ISSUER="+w.issuer.URL, "LIMIT_ANONYMOUS_RATE=1", "LIMIT_ANONYMOUS_BURST=1")
	each(d, func(o *system.Operation, media string) {
		system.Flood(w.T, func() system.Answer { return s.Send(exampleOf(d, o, media, nil).Request) })
	})
	return s
}

// withoutIssuer is a system that cannot authenticate callers.
func (w *world) withoutIssuer(d *system.Document) *system.System {
	s := system.StartOn(w.T, kit.Listen(w.T), "WAKES=false", "OIDC_ISSUER=http://127.0.0.1:1")
	each(d, func(o *system.Operation, media string) {
		e := exampleOf(d, o, media, nil)
		e.Token = w.alice
		system.WantProblem(w.T, s.Send(e.Request), http.StatusServiceUnavailable, "unavailable")
	})
	return s
}

// withoutFunctions is a system whose proxy answers for each function that it takes too
// long.
func (w *world) withoutFunctions(d *system.Document) *system.System {
	s := system.StartOn(w.T, kit.Listen(w.T), "WAKES=false", "OIDC_ISSUER="+w.issuer.URL)
	asked := ""
	for _, f := range functions.All {
		proxy := s.StandIn(f.Name)
		proxy.Answers(func(rw http.ResponseWriter, r *http.Request) {
			// The request that identifies the caller passes.
			if asked == r.Method+" "+r.URL.Path {
				http.Error(rw, "too slow", http.StatusGatewayTimeout)
				return
			}
			proxy.Function.ServeHTTP(rw, r)
		})
	}
	each(d, func(o *system.Operation, media string) {
		if !slices.Contains(statuses(d, o), "504") {
			return
		}
		e := exampleOf(d, o, media, nil)
		e.Token = w.caller(o.ID)
		at, err := url.Parse(e.Request.Path)
		kit.Must(w.T, err)
		asked = o.Method + " " + at.Path
		system.WantProblem(w.T, s.Send(e.Request), http.StatusGatewayTimeout, "timeout")
	})
	return s
}
