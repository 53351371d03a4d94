// Package account is the function that maps identities at the issuer to internal user
// ids.
package account

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// The routes: register the caller, and read their account.
var (
	Register = fn.Route{
		ID: "register-me", Method: http.MethodPost, Path: "/v1/me", Self: true, Bodyless: true,
		Summary:     "Register the caller",
		Description: "Makes the caller's account when it is met for the first time and copies the token's roles; may be sent any number of times. A sign-in in the browser does the same.",
	}
	Get = fn.Route{
		ID: "get-me", Method: http.MethodGet, Path: "/v1/me", Self: true,
		Summary:     "Read the caller's account",
		Description: "The user_id is what entitlements, notifications and everything else belong to. Roles are those of this request's token or session.",
	}
)

// LinkPath links a second identity to the caller's account. The gateway calls it with two
// statements, one of the caller and one of the identity to link; clients cannot reach it.
const LinkPath = "/identities"

// SecondPath is the path in the statement of the identity to link. No request can have
// this path, so that statement never passes for a caller's.
const SecondPath = LinkPath + "#second"

// Second is the body of LinkPath.
type Second struct {
	Statement string `json:"statement"`
}

type function struct {
	env   *fn.Env
	store *account.Store
}

type me struct{ Body account.Account }

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("account")
	if err != nil {
		return err
	}
	f := &function{e, account.NewStore(pool)}
	fn.Handle(e, Register, f.register)
	fn.Handle(e, Get, f.get)
	e.Mux.HandleFunc("POST "+LinkPath, f.link)
	return nil
}

func (f *function) register(ctx context.Context, _ *struct{}) (*me, error) {
	caller := auth.From(ctx)
	registered, err := f.store.Register(ctx, caller.Issuer, caller.Subject, caller.Roles)
	return &me{registered}, err
}

func (f *function) get(ctx context.Context, _ *struct{}) (*me, error) {
	caller := auth.From(ctx)
	known, err := f.store.Get(ctx, caller.Issuer, caller.Subject)
	// For this request the token decides; the stored roles are those of the last sign-in.
	known.Roles = caller.Roles
	return &me{known}, err
}

func (f *function) link(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), f.env.Function.Timeout)
	defer cancel()
	linked, err := func() (account.Account, error) {
		caller, err := f.env.Statement(r.Header.Get(auth.StatementHeader), r.Method, r.URL.Path)
		if err != nil {
			return account.Account{}, err
		}
		body, err := fn.BufferBody(w, r)
		if err != nil {
			return account.Account{}, err
		}
		var second Second
		if err := fn.DecodeJSON(body, &second); err != nil {
			return account.Account{}, fault.New(fault.Malformed, "request_malformed", "The request cannot be read: %v.", err)
		}
		other, err := f.env.Statement(second.Statement, http.MethodPost, SecondPath)
		if err != nil {
			return account.Account{}, err
		}
		return f.store.Link(ctx, caller.UserID, other.Issuer, other.Subject)
	}()
	if err != nil {
		problem.Write(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(linked) // the gateway may be gone
}
