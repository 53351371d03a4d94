package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

const (
	callTimeout  = 5 * time.Second  // of one request to the gateway or the issuer
	orderTimeout = 15 * time.Second // of all that an order takes
	maxTries     = 3
	firstWait    = 100 * time.Millisecond // before the second try; it doubles
	maxAnswer    = 64 << 10               // of an answer of the gateway; it has a few hundred bytes
)

// service is a client of the gateway's API, as any purchase service is one.
type service struct {
	gateway string
	client  *http.Client
	tokens  tokens
	log     *slog.Logger
}

func newService(o Options) *service {
	client := &http.Client{Timeout: callTimeout}
	return &service{
		gateway: strings.TrimSuffix(o.GatewayURL, "/"), client: client, log: o.Log,
		tokens: tokens{issuer: o.IssuerURL, clientID: o.ClientID, clientSecret: o.ClientSecret, client: client},
	}
}

// receipt is what the buyer is told: what the gateway answered, and because of
// what.
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

// refund names itself and not the purchase: this shop keeps no books.
func (s *service) refund(r *http.Request, sku string) (receipt, error) {
	return s.carryOut(r, "/v1/entitlements/revokes", change{StockKeepingUnit: sku, Reason: "refund", PurchaseID: id.Text("refund", id.New())})
}

func (s *service) carryOut(r *http.Request, path string, c change) (done receipt, err error) {
	// Whoever ordered gets it, even if they close the browser at this moment.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), orderTimeout)
	defer cancel()
	if c.UserID, err = s.buyer(ctx, r); err != nil {
		return done, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return done, err
	}
	// The same key on every try: however many of them arrive, one counts.
	for try, wait := 1, firstWait; ; try, wait = try+1, wait*2 {
		done.PurchaseID = c.PurchaseID
		again, err := s.write(ctx, path, c.PurchaseID, body, &done)
		if err == nil || !again || try == maxTries {
			return done, err
		}
		s.log.WarnContext(ctx, "order tried again", "error", err.Error())
		select {
		case <-ctx.Done():
			return done, err
		case <-time.After(wait):
		}
	}
}

// buyer returns the user id of whose browser sent r: the gateway knows its session.
func (s *service) buyer(ctx context.Context, r *http.Request) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.gateway+"/v1/me", http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header["Cookie"] = r.Header["Cookie"]
	var me struct {
		UserID string `json:"user_id"`
	}
	status, err := s.ask(request, &me)
	if err != nil {
		// What the gateway says of the buyer's session is for the buyer.
		var p *problem.Problem
		if errors.As(err, &p) && (status == http.StatusUnauthorized || status == http.StatusTooManyRequests) {
			return "", p
		}
		return "", away(err)
	}
	return me.UserID, nil
}

// write sends a grant or revoke; again says whether the same may be sent once more.
func (s *service) write(ctx context.Context, path, key string, body []byte, out *receipt) (again bool, err error) {
	token, err := s.tokens.get()
	if err != nil {
		return true, away(fmt.Errorf("access token: %w", err))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.gateway+path, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Idempotency-Key": {key}}
	status, err := s.ask(request, out)
	switch {
	case err == nil:
		return false, nil
	case status == http.StatusUnauthorized:
		s.tokens.forget(token) // the issuer may have new keys
		return true, away(err)
	case status == 0 || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return true, away(err)
	}
	// The shop did something wrong, and not the buyer: the problem is not wrapped.
	return false, fmt.Errorf("%s answered %d: %v", path, status, err)
}

// ask sends a request and reads the answer to it into out. What the gateway
// refuses with is a *problem.Problem; status is 0 when it did not answer.
func (s *service) ask(request *http.Request, out any) (status int, err error) {
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, err
	}
	if response.StatusCode == http.StatusOK {
		return response.StatusCode, json.Unmarshal(answer, out)
	}
	var p problem.Problem
	if json.Unmarshal(answer, &p) != nil || p.Code == "" {
		return response.StatusCode, fmt.Errorf("status %d without a problem", response.StatusCode)
	}
	return response.StatusCode, &p
}

// away is the answer when a part that the shop needs is not there. The cause is
// not wrapped: it may be a problem, which is the shop's and not the buyer's.
func away(cause error) error {
	return &fault.Error{Kind: fault.Unavailable, Code: "unavailable", RetryAfter: fault.DefaultRetryAfter,
		Detail: "The shop cannot reach a part that it needs; look whether you got it before you order again.",
		Cause:  errors.New(cause.Error())}
}
