package shop_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/shop"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A purchase belongs to its buyer and nobody else, and a refund takes it back.
func TestPurchaseAndRefund(t *testing.T) {
	t.Parallel()
	s := setup(t, nil)
	alice, bob := s.signIn("alice"), s.signIn("bob")
	status, bought := s.send(alice, shop.PurchasesPath, sword)
	if status != http.StatusOK || bought["status"] != "ACTIVE" || bought["version"] != 1.0 || bought["stock_keeping_unit"] != "sword" {
		t.Fatalf("the purchase answered %d %v", status, bought)
	}
	if n := s.count(`SELECT count(*) FROM entitlement.entitlements WHERE user_id = $1 AND status = 'ACTIVE'`, bought["user_id"]); n != 1 {
		t.Errorf("alice has %d items, want 1", n)
	}
	if _, his := s.send(bob, shop.PurchasesPath, sword); his["user_id"] == bought["user_id"] || his["purchase_id"] == bought["purchase_id"] || his["version"] != 1.0 {
		t.Errorf("bob bought %v", his)
	}
	status, refunded := s.send(alice, shop.RefundsPath, sword)
	if status != http.StatusOK || refunded["status"] != "REVOKED" || refunded["version"] != 2.0 || refunded["user_id"] != bought["user_id"] {
		t.Fatalf("the refund answered %d %v", status, refunded)
	}
	for _, want := range []struct {
		receipt map[string]any
		reason  string
	}{{bought, "purchase"}, {refunded, "refund"}} {
		if n := s.count(`SELECT count(*) FROM entitlement.entitlement_audit WHERE user_id = $1 AND reason = $2 AND purchase_id = $3`,
			want.receipt["user_id"], want.reason, want.receipt["purchase_id"]); n != 1 {
			t.Errorf("%d audit rows of %v, want 1", n, want)
		}
	}
}

// Orders that come from no page of this site, cannot be read, or come without a session
// change nothing.
func TestRefusedOrders(t *testing.T) {
	t.Parallel()
	s := setup(t, nil)
	alice := s.signIn("alice")
	for name, test := range map[string]struct {
		client  *http.Client
		body    string
		headers []string
		status  int
		code    string
	}{
		"no X-CSRF":        {alice, sword, []string{"X-CSRF:"}, 403, "csrf_refused"},
		"another X-CSRF":   {alice, sword, []string{"X-CSRF: 0"}, 403, "csrf_refused"},
		"another site":     {alice, sword, []string{"Sec-Fetch-Site: cross-site"}, 403, "csrf_refused"},
		"a sibling site":   {alice, sword, []string{"Sec-Fetch-Site: same-site"}, 403, "csrf_refused"},
		"another origin":   {alice, sword, []string{"Sec-Fetch-Site:", "Origin: http://evil.example"}, 403, "csrf_refused"},
		"no session":       {http.DefaultClient, sword, nil, 401, "session_missing"},
		"a forged session": {http.DefaultClient, sword, []string{"Cookie: miniserver_session=" + strings.Repeat("A", 43)}, 401, "session_missing"},
		"a form":           {alice, "stock_keeping_unit=sword", []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "content_type_unsupported"},
		"no type":          {alice, sword, []string{"Content-Type:"}, 415, "content_type_unsupported"},
		"no body":          {alice, "", nil, 400, "request_malformed"},
		"half a body":      {alice, `{"stock_keeping_unit":`, nil, 400, "request_malformed"},
		"a bracket more":   {alice, sword + "]", nil, 400, "request_malformed"},
		"two bodies":       {alice, sword + sword, nil, 400, "request_malformed"},
		"a list":           {alice, `["sword"]`, nil, 400, "request_malformed"},
		"somebody else":    {alice, `{"stock_keeping_unit": "sword", "user_id": "u_bob"}`, nil, 400, "request_malformed"},
		"too much":         {alice, `{"stock_keeping_unit": "` + strings.Repeat("s", 5000) + `"}`, nil, 413, "body_too_large"},
		"not sold":         {alice, `{"stock_keeping_unit": "crown"}`, nil, 422, "request_invalid"},
		"nothing":          {alice, `{}`, nil, 422, "request_invalid"},
	} {
		for _, path := range []string{shop.PurchasesPath, shop.RefundsPath} {
			status, answer := s.send(test.client, path, test.body, test.headers...)
			if status != test.status || answer["code"] != test.code || answer["detail"] == "" {
				t.Errorf("%s, %s: answered %d %v", path, name, status, answer)
			}
		}
	}
	if status, _ := s.send(alice, "/demo/other", sword); status != http.StatusNotFound {
		t.Errorf("another path: %d, want 404", status)
	}
	if n := s.count(`SELECT count(*) FROM entitlement.entitlement_audit`); n != 0 {
		t.Errorf("%d changes, want none", n)
	}
}

// breaking passes requests on to the gateway, but breaks the connection after the first
// answers to grants: they were done, and the shop gets no answer.
type breaking struct {
	*site
	breaks atomic.Int64 // how many are left
}

func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.serveGateway(w, r)
	if strings.HasSuffix(r.URL.Path, "/grants") && b.breaks.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
}

// An order whose answer was lost is sent again, and counts once. (Go itself sends
// requests with an Idempotency-Key again when a connection breaks.)
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	for lost, want := range map[int64]int{1: 200, 3: 200, 100: 503} {
		t.Run(fmt.Sprint(lost, " lost"), func(t *testing.T) {
			t.Parallel()
			s := setup(t, func(s *site, o *shop.Options) {
				b := &breaking{site: s}
				b.breaks.Store(lost)
				o.GatewayURL = serve(t, listen(t, ""), b)
			})
			status, answer := s.send(s.signIn("alice"), shop.PurchasesPath, sword)
			if status != want || want == http.StatusOK && answer["version"] != 1.0 || want != http.StatusOK && answer["code"] != "unavailable" {
				t.Errorf("answered %d %v", status, answer)
			}
			if n := s.count(`SELECT count(*) FROM entitlement.entitlement_audit`); n != 1 {
				t.Errorf("%d changes, want 1", n)
			}
		})
	}
}

// When the issuer comes back with other keys, and the gateway forgets the old ones, the
// shop's token becomes invalid, and it gets another.
func TestIssuerWithNewKeys(t *testing.T) {
	t.Parallel()
	s := setup(t, nil)
	alice := s.signIn("alice")
	if status, answer := s.send(alice, shop.PurchasesPath, sword); status != http.StatusOK {
		t.Fatalf("the purchase answered %d %v", status, answer)
	}
	address, err := url.Parse(s.issuer.URL())
	kit.Must(t, err)
	kit.Must(t, s.issuer.Stop())
	s.startIssuer(listen(t, address.Host))
	s.startGateway()
	if status, answer := s.send(alice, shop.RefundsPath, sword); status != http.StatusOK || answer["version"] != 2.0 {
		t.Errorf("the refund answered %d %v, want 200 with version 2", status, answer)
	}
}

// A fault of the shop or behind it is not the buyer's, and its cause is not shown to
// them.
func TestNotTheBuyersFault(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*site, *shop.Options)
		status int
		code   string
	}{
		"no gateway":     {func(_ *site, o *shop.Options) { o.GatewayURL = "http://127.0.0.1:1" }, 503, "unavailable"},
		"no issuer":      {func(_ *site, o *shop.Options) { o.IssuerURL = "http://127.0.0.1:1" }, 503, "unavailable"},
		"a wrong secret": {func(_ *site, o *shop.Options) { o.ClientSecret = "wrong" }, 503, "unavailable"},
		"a role too weak": {func(_ *site, o *shop.Options) {
			o.ClientID, o.ClientSecret = issuer.OpsClientID, issuer.OpsClientSecret
		}, 500, "internal_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t, test.change)
			status, answer := s.send(s.signIn("alice"), shop.PurchasesPath, sword)
			if status != test.status || answer["code"] != test.code {
				t.Errorf("answered %d %v", status, answer)
			}
			for _, secret := range []string{"127.0.0.1", "invalid_client", "role", "secret"} {
				if strings.Contains(fmt.Sprint(answer["detail"]), secret) {
					t.Errorf("the buyer is shown: %s", answer["detail"])
				}
			}
			if n := s.count(`SELECT count(*) FROM entitlement.entitlement_audit`); n != 0 {
				t.Errorf("%d changes, want none", n)
			}
		})
	}
}

// Many orders at once share one token and nothing else.
func TestOrdersAtOnce(t *testing.T) {
	t.Parallel()
	s := setup(t, nil)
	alice := s.signIn("alice")
	const orders = 16
	var group sync.WaitGroup
	for range orders {
		group.Go(func() {
			if status, answer := s.send(alice, shop.PurchasesPath, sword); status != http.StatusOK {
				t.Errorf("answered %d %v, want 200", status, answer)
			}
		})
	}
	group.Wait()
	if n := s.count(`SELECT max(version)::int FROM entitlement.entitlements`); n != orders {
		t.Errorf("version %d after %d orders", n, orders)
	}
}

// Everybody may read the list of items.
func TestItems(t *testing.T) {
	t.Parallel()
	goods, err := shop.New(shop.Options{GatewayURL: "http://127.0.0.1:1"})
	kit.Must(t, err)
	origin := serve(t, listen(t, ""), goods)
	response, err := http.Get(origin + shop.ItemsPath)
	kit.Must(t, err)
	defer response.Body.Close()
	var catalog struct {
		Items []struct {
			StockKeepingUnit string `json:"stock_keeping_unit"`
			Name, Price      string
		}
	}
	decode(t, response.Body, &catalog)
	if response.StatusCode != http.StatusOK || len(catalog.Items) < 2 || catalog.Items[0].StockKeepingUnit != "sword" || catalog.Items[0].Name == "" || catalog.Items[0].Price == "" {
		t.Errorf("answered %s %+v, want 200 with the sword first", response.Status, catalog)
	}
	if _, err := shop.New(shop.Options{GatewayURL: "no url"}); err == nil {
		t.Error("a shop without a valid gateway URL")
	}
}
