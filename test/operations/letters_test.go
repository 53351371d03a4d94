package operations_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// letter puts a message among those that could not be read.
func (d *desk) letter(data []byte, headers map[string][]string, reason string) (id string) {
	d.T.Helper()
	text, err := json.Marshal(headers)
	kit.Must(d.T, err)
	kit.Must(d.T, d.Pool.QueryRow(d.T.Context(), `INSERT INTO notification.notification_dlq (event_id, event_type, raw_message, raw_headers, error)
		VALUES ($1, $2, $3, $4::jsonb, $5) RETURNING dead_letter_id::text`, strings.Join(headers["ce-id"], ""), strings.Join(headers["ce-type"], ""), data, string(text), reason).Scan(&id))
	return id
}

// granted is a message that can be read.
func granted(t testing.TB, user string) event.Message {
	t.Helper()
	id := uuid.NewString()
	message, err := event.Encode(event.Record{
		ID: id, Type: "EntitlementGranted", Key: user, OccurredAt: time.Now(),
		Payload: fmt.Appendf(nil, `{"event_id":%q,"event_type":"EntitlementGranted","user_id":%q,"stock_keeping_unit":"item1","version":1}`, id, user),
	})
	kit.Must(t, err)
	return message
}

func headersOf(m event.Message) map[string][]string {
	headers := map[string][]string{}
	for name, value := range m.Headers() {
		headers[name] = []string{value}
	}
	return headers
}

// Replayed messages reach their consumer: one that can be read now makes its one
// notification, however often it is replayed; one that cannot stays, with the reason.
func TestReplay(t *testing.T) {
	t.Parallel()
	d := setup(t)
	good := granted(t, "u_1")
	d.letter(good.Data, headersOf(good), "a version that did not know it")
	d.letter([]byte("\xff\x00 no event"), map[string][]string{"ce-type": {"foreign"}}, "unreadable")
	if got := d.done(d.begun("k1", order("replay", "notification-letters", `{}`, 10, 10)).ID); got.Done != 1 || got.Skipped != 1 || got.LastError == "" {
		t.Errorf("the act is %+v, want 1 done and 1 skipped with its reason", got)
	}
	d.letter(good.Data, headersOf(good), "came again")
	if got := d.done(d.begun("k2", order("replay", "notification-letters", `{"event_type":"`+good.Type+`"}`, 10, 10)).ID); got.Done != 1 {
		t.Errorf("the act is %+v, want 1 done", got)
	}
	if n := d.Count(`SELECT count(*) FROM notification.notifications WHERE event_id = $1::uuid`, good.ID); n != 1 {
		t.Errorf("%d notifications of the event, want 1", n)
	}
	if n := d.Count(`SELECT count(*) FROM notification.notification_dlq`); n != 1 {
		t.Errorf("%d letters are left, want the one that cannot be read", n)
	}
	if got := d.done(d.begun("k3", order("discard", "notification-letters", `{}`, 10, 10)).ID); got.Done != 1 {
		t.Errorf("the act is %+v, want the last letter discarded", got)
	}
	if n := d.Count(`SELECT count(*) FROM notification.notification_dlq`); n != 0 {
		t.Errorf("%d letters are left, want none", n)
	}
}

// Whatever a message holds is shown and never run: markup, a megabyte, bytes that are no
// text. Discarding letters leaves those of FAILED notifications alone.
func TestLettersAreShown(t *testing.T) {
	t.Parallel()
	d := setup(t)
	const markup = `<script>alert(1)</script><img src=x onerror=alert(1)>`
	d.letter([]byte(markup), map[string][]string{"ce-type": {markup}, markup: {markup}}, markup)
	d.letter([]byte(strings.Repeat("é", 1<<19)), map[string][]string{}, "large")
	d.letter([]byte{0xff, 0x00, 0xfe}, map[string][]string{}, "binary")
	d.failed(1, "u_<b>", markup)
	d.exec(`UPDATE notification.notifications SET payload = to_jsonb(repeat('<script>', 130000))`)
	list := d.Call(http.MethodGet, "/v1/operations/queues/notification-letters/letters", d.viewer, "")
	system.WantStatus(t, list, http.StatusOK)
	var got struct {
		Letters []struct {
			Message string
			Base64  bool
			Bytes   int `json:"message_bytes"`
		}
	}
	kit.Must(t, json.Unmarshal(list.Body, &got))
	if len(got.Letters) != 3 {
		t.Fatalf("%d letters are listed, want 3: %s", len(got.Letters), list.Body)
	}
	if l := got.Letters[0]; !l.Base64 || l.Message != "/wD+" || l.Bytes != 3 {
		t.Errorf("the binary message is shown as %+v, want base64", l)
	}
	if l := got.Letters[1]; l.Base64 || len(l.Message) > 16<<10 || !strings.HasPrefix(l.Message, "éé") || l.Bytes != 1<<20 {
		t.Errorf("the large message is shown as %d bytes of %d, base64 %v; want the first 16 KiB of a megabyte as text", len(l.Message), l.Bytes, l.Base64)
	}
	if l := got.Letters[2]; l.Message != markup {
		t.Errorf("the message is shown as %q, want it as it is", l.Message)
	}
	for _, page := range []string{"/console/queues/notification-letters", "/console/queues/notifications"} {
		a := d.Call(http.MethodGet, page, d.viewer, "")
		system.WantStatus(t, a, http.StatusOK)
		if body := string(a.Body); strings.Contains(body, "<script>a") || strings.Contains(body, "<img") || strings.Contains(body, "<b>") || !strings.Contains(body, "&lt;script&gt;") {
			t.Errorf("%s does not show markup as text", page)
		}
		if len(a.Body) > 1<<18 {
			t.Errorf("%s has %d bytes, want payloads cut", page, len(a.Body))
		}
		if policy := a.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s has the policy %q", page, policy)
		}
	}
	system.WantStatus(t, d.begin("k", order("discard", "notification-letters", `{}`, 10, 100)), http.StatusCreated)
	kit.Eventually(t, "the letters are gone", func() bool {
		return d.Count(`SELECT count(*) FROM notification.notification_dlq WHERE notification_id IS NULL`) == 0
	})
	if n := d.Count(`SELECT count(*) FROM notification.notification_dlq`); n != 1 {
		t.Errorf("%d letters are left, want that of the FAILED notification", n)
	}
}
