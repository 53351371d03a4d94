package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	accounts "github.com/miniserversystem/miniserver/functions/account"
	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

const (
	quotaPeriod = time.Minute
	// maxUsers bounds the user ids that are kept in memory.
	maxUsers = 100_000
	// maxAnswer bounds how many bytes of a function's answer are read: a page of a list.
	maxAnswer = 1 << 20
)

// userID returns the caller's user id. A caller without one is registered.
func (g *gateway) userID(ctx context.Context, caller auth.Identity) (string, error) {
	if id, ok := g.users.Get(callerKey(caller), time.Now()); ok {
		return id, nil
	}
	registered, err := g.register(ctx, caller)
	return registered.UserID, err
}

// register makes the caller's account, or brings its roles up to date.
func (g *gateway) register(ctx context.Context, caller auth.Identity) (registered account.Account, err error) {
	err = g.ask(ctx, g.functionOf(accounts.Register), http.MethodPost, accounts.Register.Path, caller, nil, &registered)
	if err == nil {
		g.remember(caller, registered.UserID)
	}
	return registered, err
}

// remember caches the user id of an identity.
func (g *gateway) remember(identity auth.Identity, userID string) {
	g.users.Put(callerKey(identity), userID, time.Now().Add(account.Memory))
}

// ask sends a request of the gateway's own to a function, on behalf of caller,
// and reads its answer into out. A problem that the function answers with is
// returned as it is.
func (g *gateway) ask(ctx context.Context, f fn.Function, method, path string, caller auth.Identity, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	body, err := []byte(nil), error(nil)
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+f.Name+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	statement, err := g.signer.Sign(auth.Call{Function: f.Name, Method: method, Path: request.URL.Path}, caller)
	if err != nil {
		return err
	}
	request.Header = http.Header{auth.StatementHeader: {statement}, "Content-Type": {"application/json"}}
	telemetry.Inject(ctx, request.Header)
	response, err := g.invoke.RoundTrip(request)
	if err == nil {
		defer response.Body.Close()
		err = refused(response)
	}
	if err != nil {
		return partAway(f.Name, err)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return partAway(f.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		return explain(f.Name, response, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("answer of function %s: %w", f.Name, err)
	}
	return nil
}

// explain returns the problem that a function answered with.
func explain(function string, response *http.Response, answer []byte) error {
	if response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == http.StatusGatewayTimeout {
		return partAway(function, fmt.Errorf("answered %d", response.StatusCode))
	}
	p, ok := problem.Parse(answer)
	if !ok || response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("function %s answered %d", function, response.StatusCode)
	}
	p.Status = response.StatusCode // a proxy's problem may have another, or none, which cannot be sent
	return p
}

// errNotBelieved is for a function's 401: it rejects our statement (keys were
// rotated in the wrong order, a proxy changed the path), which the caller cannot change.
var errNotBelieved = errors.New("it does not believe the gateway's statement; IDENTITY_VERIFY_KEYS must hold the key of IDENTITY_SIGNING_KEY, and nothing in between may change a method or path")

// refused returns errNotBelieved for a 401.
func refused(response *http.Response) error {
	if response.StatusCode == http.StatusUnauthorized {
		return errNotBelieved
	}
	return nil
}

// partAway is the error of a function that did not answer.
func partAway(function string, cause error) error {
	return &fault.Error{
		Kind: fault.Unavailable, Code: "unavailable", RetryAfter: time.Second,
		Detail: "This part of the system cannot be reached at the moment; send the same request again.",
		Cause:  fmt.Errorf("function %s: %w", function, cause),
	}
}
