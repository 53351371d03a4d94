package webhook_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/webhook"
)

// A receiver verifies the signature before it uses the body, and refuses a sender without
// the secret. It should remember webhook-id: a notification may come again.
func Example() {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("32 bytes that both sides know of"))
	verifier, _ := standardwebhooks.NewWebhook(secret)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verifier.Verify(body, r.Header); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Printf("%s: %s\n", r.Header.Get(standardwebhooks.HeaderWebhookID), body)
	}))
	defer receiver.Close()

	send := func(secret string) error {
		// AllowPrivate, as this receiver is on loopback and speaks plain http.
		channel, err := webhook.New(webhook.Options{URLs: []string{receiver.URL}, Secrets: []string{secret}, AllowPrivate: true, Timeout: 5 * time.Second})
		if err != nil {
			return err
		}
		return channel.Send(context.Background(), notification.Outgoing{
			ID: "n_1", EventID: "e_1", EventType: "EntitlementGranted", UserID: "u_1",
			OccurredAt: time.Date(2026, 1, 8, 7, 10, 0, 0, time.UTC), Payload: []byte(`{"item":"hat"}`),
		})
	}
	fmt.Println(send(secret))
	fmt.Println(send("whsec_"+base64.StdEncoding.EncodeToString([]byte("32 bytes that somebody has guess"))) != nil)
	// Output:
	// n_1: {"type":"EntitlementGranted","timestamp":"2026-01-08T07:10:00Z","data":{"notification_id":"n_1","event_id":"e_1","user_id":"u_1","payload":{"item":"hat"}}}
	// <nil>
	// true
}
