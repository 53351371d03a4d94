package shop

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/id"
)

const (
	callTimeout  = 5 * time.Second  // of one request to the gateway or the issuer
	orderTimeout = 15 * time.Second // of all that an order takes
	maxTries     = 3
	firstWait    = 100 * time.Millisecond // before the second try; it doubles
)

// service is a client of the gateway's API, like any purchase service.
type service struct {
	gateway string
	client  *http.Client
	tokens  tokens
	log     *slog.Logger
}

func newService(o Options, clientID, clientSecret string) *service {
	client := &http.Client{Timeout: callTimeout}
	return &service{
		gateway: strings.TrimSuffix(o.GatewayURL, "/"), client: client, log: o.Log,
		tokens: tokens{issuer: o.IssuerURL, clientID: clientID, clientSecret: clientSecret, client: client},
	}
}

// receipt is what the buyer gets: the gateway's answer, and the purchase or refund that
// caused it.
type receipt struct {
	PurchaseID       string    `json:"purchase_id"`
	UserID           string    `json:"user_id"`
	StockKeepingUnit string    `json:"stock_keeping_unit"`
	Status           string    `json:"status"`
	Version          int64     `json:"version"`
	UpdatedAt        time.Time `json:"updated_at"`
}

// change is the body of a grant or revoke.
type change struct {
	UserID           string `json:"user_id"`
	StockKeepingUnit string `json:"stock_keeping_unit"`
	Reason           string `json:"reason"`
	PurchaseID       string `json:"purchase_id"`
}

func (s *service) purchase(r *http.Request, sku string) (receipt, error) {
	return s.carryOut(r, "/v1/entitlements/grants", change{StockKeepingUnit: sku, Reason: "purchase", PurchaseID: id.Text("purchase", id.New())})
}

// refund has an id of its own, not the purchase's: this shop keeps no books.
func (s *service) refund(r *http.Request, sku string) (receipt, error) {
	return s.carryOut(r, "/v1/entitlements/revokes", change{StockKeepingUnit: sku, Reason: "refund", PurchaseID: id.Text("refund", id.New())})
}

func (s *service) carryOut(r *http.Request, path string, c change) (done receipt, err error) {
	// The order is carried out even if the buyer closes the browser at this moment.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), orderTimeout)
	defer cancel()
	if c.UserID, err = s.buyer(ctx, r); err != nil {
		return done, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return done, err
	}
	done.PurchaseID = c.PurchaseID
	return done, s.retry(ctx, path, c.PurchaseID, body, &done)
}

// retry writes with the same key on every try: however many of them arrive, one counts.
func (s *service) retry(ctx context.Context, path, key string, body []byte, out any) error {
	for try, wait := 1, firstWait; ; try, wait = try+1, wait*2 {
		again, err := s.write(ctx, path, key, body, out)
		if err == nil || !again || try == maxTries {
			return err
		}
		s.log.WarnContext(ctx, "order tried again", "error", err.Error())
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
