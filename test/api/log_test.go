package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// Whatever is received, each log line is one line of JSON without secrets.
func TestLog(t *testing.T) {
	t.Parallel()
	s := system.Start(t) // with wakes: all functions log
	const planted = "planted-Secret-7c1f"
	nasty := []string{
		"a\nb", "a\r\nb", "\x1b[31mred\x1b[0m", "\u009b31m", "a\u2028b", "a\u2029b", "\u202eevil", "a\x00b", "\b\b\b", "\ufeffa",
		`{"level":"ERROR","msg":"forged"}`, `","level":"ERROR","x":"`, `\n`, `\u000a`, "<script>alert(1)</script>", "%0a%0d", "日本語",
	}
	for _, text := range nasty {
		for _, body := range []string{
			system.ChangeBody(text, "item1", "purchase", "p_1"), system.ChangeBody("u_1", text, "purchase", "p_1"),
			system.ChangeBody("u_1", "item1", text, "p_1"), system.ChangeBody("u_1", "item1", "purchase", text),
		} {
			s.Post(system.GrantsPath, "k"+url.QueryEscape(text+body), body)
			s.Structured(system.CloudEvent{ID: text, Source: "/shop", Kind: "purchase.completed", Data: body})
		}
		s.Structured(system.CloudEvent{ID: "e1", Source: text, Kind: "purchase.completed", Data: system.ChangeBody("u_1", "item1", "purchase", "p_1")})
		s.Structured(system.CloudEvent{ID: "e1", Source: "/shop", Kind: text, Data: system.ChangeBody("u_1", "item1", "purchase", "p_1")})
		s.Call(http.MethodGet, "/v1/users/"+url.PathEscape(text)+"/entitlements?cursor="+url.QueryEscape(text), s.Writer, "")
		s.Call(http.MethodGet, "/"+url.PathEscape(text), s.Writer, "")
		if !strings.ContainsAny(text, "\n\r\x00\x1b\b") {
			s.Grant("k1", "u_1", "item1", "Traceparent: "+text, "User-Agent: "+text, "X-Forwarded-For: "+text)
		}
		s.Direct("grant", http.MethodPost, system.GrantsPath, text, auth.StatementHeader+": "+planted+text)
		s.Direct("relay", http.MethodPost, "/tick", text)
	}
	// Secrets in the right places and in wrong ones.
	s.Call(http.MethodGet, "/v1/users/u_1/entitlements", planted, "")
	s.Call(http.MethodGet, "/v1/users/u_1/entitlements?access_token="+planted, s.Writer, "")
	s.Send(system.Request{Method: http.MethodGet, Path: "/v1/users/u_1/entitlements", Header: http.Header{"Authorization": {"Basic " + planted}, "Cookie": {"session=" + planted}}})
	s.Call(http.MethodPost, system.GrantsPath, s.Writer, `{"user_id":"`+planted+`","password":"`+planted+`"}`, "Idempotency-Key: k")
	s.Grant("told", "u_told", "item1")
	kit.Eventually(t, "all notifications are sent", func() bool {
		return s.Count(`SELECT count(*) FROM entitlement.outbox_events WHERE status <> 'PUBLISHED'`) == 0 &&
			s.Count(`SELECT count(*) FROM notification.notifications WHERE status <> 'SENT'`) == 0 &&
			s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = 'u_told'`) == 1
	})

	log := s.Log.String()
	lines := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	notified := 0
	for _, line := range lines {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("a log line is not JSON: %q", line)
		}
		if entry["level"] == nil || entry["time"] == nil || entry["msg"] == "forged" {
			t.Errorf("a forged log line: %s", line)
		}
		if entry["msg"] == "notification" {
			notified++
		}
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }) {
			t.Errorf("a log line has a control character: %q", line)
		}
	}
	if notified == 0 || len(lines) < 10 {
		t.Errorf("%d lines, %d notifications: is this the log?", len(lines), notified)
	}
	var key struct{ D string }
	kit.Must(t, json.Unmarshal([]byte(s.Settings().IdentitySigningKey), &key))
	database, err := url.Parse(s.Settings().EntitlementDatabaseURL)
	kit.Must(t, err)
	password, _ := database.User.Password()
	signer, err := auth.NewSigner(s.Settings().IdentitySigningKey)
	kit.Must(t, err)
	statement, err := signer.Sign(auth.Call{Function: "grant", Method: http.MethodPost, Path: system.GrantsPath}, system.AnotherShop)
	kit.Must(t, err)
	for what, secret := range map[string]string{
		"the writer's token": s.Writer, "its signature": s.Writer[strings.LastIndexByte(s.Writer, '.')+1:], "the operator's token": s.Operator,
		"the signing key": key.D, "the database's password": password, "a planted secret": planted,
		"a statement": statement[:strings.IndexByte(statement, '.')],
	} {
		if len(secret) < 8 {
			t.Fatalf("the secret %s is too short to be searched for: %q", what, secret)
		}
		if strings.Contains(log, secret) {
			at := strings.Index(log, secret)
			t.Errorf("%s is in the log: …%s…", what, log[max(0, at-200):at+10])
		}
	}
}

// A caller who hangs up is not counted as our failure, though the function could not
// finish.
func TestHangUpIsNoFailure(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	system.WantStatus(t, s.Grant("k1", "u_1", "item1"), http.StatusOK)
	tx, err := s.Pool.Begin(t.Context())
	kit.Must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT 1 FROM entitlement.entitlements FOR UPDATE`)
	kit.Must(t, err)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+system.GrantsPath, strings.NewReader(system.ChangeBody("u_1", "item1", "purchase", "p_2")))
	kit.Must(t, err)
	request.Header = http.Header{"Authorization": {"Bearer " + s.Writer}, "Content-Type": {"application/json"}, "Idempotency-Key": {"k2"}}
	ended := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(request)
		ended <- err
	}()
	kit.Eventually(t, "the grant waits for the row", func() bool {
		return s.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	hangUp()
	if err := <-ended; err == nil {
		t.Fatal("the grant was answered")
	}
	kit.Eventually(t, "the request's line", func() bool { return strings.Count(s.Log.String(), `"msg":"request"`) == 2 })
	if log := s.Log.String(); !strings.Contains(log, `"status":499`) {
		t.Errorf("the log says %s, want the status 499", log)
	}
	kit.Must(t, tx.Rollback(t.Context()))
}
