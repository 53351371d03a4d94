// Package shop is a demo shop, the purchase service that you would write, and a demo
// bank, which gives players something to send each other. It exists for make run and for
// tests, so that there is something to try in the browser. It has no more access to the
// system than other services: it asks the gateway's API who buys, with the browser's own
// cookies, and grants with an access token of its own.
package shop

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// Paths of the shop, beside the gateway on the same origin: so it gets the browser's
// session cookie.
const (
	ItemsPath     = "/demo/shop"
	PurchasesPath = "/demo/shop/purchases"
	RefundsPath   = "/demo/shop/refunds"
)

// Options say where the shop is, and which clients it and the bank are at the issuer.
type Options struct {
	GatewayURL   string // where the API answers, and the origin of the pages that may buy
	IssuerURL    string
	ClientID     string // of a client with the role entitlement-writer
	ClientSecret string
	// The bank's client, with the role operator; no id, no bank.
	BankClientID     string
	BankClientSecret string

	Log *slog.Logger // for what buyers are not shown; nil for none
}

// item is something to buy.
type item struct {
	StockKeepingUnit string `json:"stock_keeping_unit"`
	Name             string `json:"name"`
	Price            string `json:"price"` // for people
}

var items = []item{
	{"sword", "Sword of Dawn", "€4.99"},
	{"shield", "Oaken Shield", "€3.49"},
	{"lantern", "Lantern of Fireflies", "€1.99"},
}

type shop struct {
	service *service
	origin  *http.CrossOriginProtection
	log     *slog.Logger
}

// New returns the shop's handler; it answers below /demo/ and nowhere else. It sends no
// request before the first purchase, so the gateway and the issuer may start later. The
// error is about GatewayURL.
func New(o Options) (http.Handler, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &shop{service: newService(o, o.ClientID, o.ClientSecret), origin: http.NewCrossOriginProtection(), log: o.Log}
	if err := s.origin.AddTrustedOrigin(o.GatewayURL); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+ItemsPath, s.list)
	mux.HandleFunc("POST "+PurchasesPath, s.order((*service).purchase))
	mux.HandleFunc("POST "+RefundsPath, s.order((*service).refund))
	if o.BankClientID != "" {
		s.registerBank(mux, newService(o, o.BankClientID, o.BankClientSecret))
	}
	mux.HandleFunc("/demo/", func(w http.ResponseWriter, _ *http.Request) {
		problem.Write(w, problem.New(http.StatusNotFound, "route_not_found", "The shop has "+ItemsPath+", "+PurchasesPath+" and "+RefundsPath+"."))
	})
	return mux, nil
}

func (s *shop) list(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string][]item{"items": items})
}

// Errors of the shop.
var (
	errSession   = fault.New(fault.Unauthenticated, "session_missing", "There is no session, or it has ended; sign in again at /login.")
	errCSRF      = fault.New(fault.Forbidden, "csrf_refused", "Buy from a page of this site, which sends the header X-CSRF: 1.")
	errMediaType = fault.New(fault.UnsupportedMedia, "content_type_unsupported", "Send application/json.")
	errMalformed = fault.New(fault.Malformed, "request_malformed", `The body is not like {"stock_keeping_unit": "sword"}; mend it.`)
	errItem      = fault.New(fault.Invalid, "request_invalid", "The shop does not sell this; GET "+ItemsPath+" lists what it sells.")
)

// maxBody is many times the bytes of a stock keeping unit.
const maxBody = 4 << 10

// order answers a purchase or a refund.
func (s *shop) order(carryOut func(*service, *http.Request, string) (receipt, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sku, err := s.read(w, r)
		var done receipt
		if err == nil {
			done, err = carryOut(s.service, r, sku)
		}
		if err != nil {
			s.failed(r, err)
			problem.Write(w, err)
			return
		}
		reply(w, done)
	}
}

// read returns what is ordered. The gateway decides who may order; only here can be
// checked that one of our pages sent the request.
func (s *shop) read(w http.ResponseWriter, r *http.Request) (string, error) {
	if r.Header.Get("X-CSRF") != "1" || s.origin.Check(r) != nil {
		return "", errCSRF
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return "", errMediaType
	}
	var wanted struct {
		StockKeepingUnit string `json:"stock_keeping_unit"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&wanted)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return "", fault.New(fault.TooLarge, "body_too_large", "The body is larger than %d bytes.", maxBody)
	}
	if _, end := decoder.Token(); err != nil || end != io.EOF {
		return "", errMalformed
	}
	for _, known := range items {
		if known.StockKeepingUnit == wanted.StockKeepingUnit {
			return known.StockKeepingUnit, nil
		}
	}
	return "", errItem
}

func reply(w http.ResponseWriter, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(body) // the browser may be gone
}
