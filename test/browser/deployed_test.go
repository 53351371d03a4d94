//go:build browser && deployed

package browser_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// The start page of a system that runs already, at GATEWAY_URL with OIDC_ISSUER: alice
// signs in, and what she is granted shows at once.
func TestDeployed(t *testing.T) {
	at := os.Getenv("GATEWAY_URL")
	b := (&site{origin: at, shopless: true}).browse(t)
	b.signIn("alice")
	item := "item-" + uuid.NewString()
	grant, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+system.GrantsPath,
		strings.NewReader(system.ChangeBody(b.text("#user-id"), item, "purchase", item)))
	kit.Must(t, err)
	grant.Header.Set("Content-Type", "application/json")
	grant.Header.Set("Idempotency-Key", item)
	grant.Header.Set("Authorization", "Bearer "+identity.Token(t, os.Getenv("OIDC_ISSUER"), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret))
	response, err := identity.Client.Do(grant)
	kit.Must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the grant is answered %s", response.Status)
	}
	b.until("the item and its notification show", shows("#owned", item)+" && "+shows("#inbox", item+" is yours"))
	b.shoot("deployed.png")
	b.click("document.querySelector('#sign-out')")
	b.until("she is signed out", signedOut)
}
