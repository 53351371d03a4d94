package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// maxAnswer bounds how many bytes of the gateway's answer are read; it has a few hundred.
const maxAnswer = 64 << 10

// buyer returns the user id behind r's session cookie, which the gateway knows.
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
	var p *problem.Problem
	switch {
	case err == nil:
		return me.UserID, nil
	case status == http.StatusUnauthorized:
		return "", errSession
	case status == http.StatusTooManyRequests && errors.As(err, &p):
		return "", p // the buyer sent too many requests, not the shop
	}
	return "", away(err)
}

// write sends a write; again reports whether it may be sent once more.
func (s *service) write(ctx context.Context, path, key string, body []byte, out any) (again bool, err error) {
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
	// The fault is the shop's and not the buyer's: the problem is not wrapped.
	return false, fmt.Errorf("%s answered %d: %v", path, status, err) //nolint:errorlint // its text only: it is not the buyer's fault
}

// ask sends a request and reads its answer into out. A refusal of the gateway is a
// *problem.Problem; status is 0 when it did not answer.
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
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated {
		return response.StatusCode, json.Unmarshal(answer, out)
	}
	p, ok := problem.Parse(answer)
	if !ok {
		return response.StatusCode, fmt.Errorf("status %d without a problem", response.StatusCode)
	}
	return response.StatusCode, p
}

// away is the error when a part that the shop needs does not answer. The cause is not
// wrapped: it may be a problem, which is the shop's and not the buyer's.
func away(cause error) error {
	return &fault.Error{
		Kind: fault.Unavailable, Code: "unavailable", RetryAfter: fault.DefaultRetryAfter,
		Detail: "The shop cannot reach a part that it needs; look whether you got it before you order again.",
		Cause:  errors.New(cause.Error()),
	}
}
