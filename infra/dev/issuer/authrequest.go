package issuer

import (
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	// authRequestLifetime is how long somebody may take to sign in.
	authRequestLifetime = 10 * time.Minute
	// codeLifetime is how long a client may take to redeem a code.
	codeLifetime = 60 * time.Second

	maxAuthRequests = 1_000
	maxCodes        = 1_000
)

// authRequest is one attempt to sign in at a client. It does not change: see
// loginStore.complete.
type authRequest struct {
	grant
	id, state, nonce, redirectURI, loginHint string
	responseMode                             oidc.ResponseMode
	challenge                                oidc.CodeChallenge
	done                                     bool
}

var _ op.AuthRequest = (*authRequest)(nil)

func newAuthRequest(r *oidc.AuthRequest) *authRequest {
	return &authRequest{
		grant:        grant{clientID: r.ClientID, scopes: r.Scopes},
		id:           uuid.NewString(),
		state:        r.State,
		nonce:        r.Nonce,
		redirectURI:  r.RedirectURI,
		loginHint:    r.LoginHint,
		responseMode: r.ResponseMode,
		challenge:    oidc.CodeChallenge{Challenge: r.CodeChallenge, Method: r.CodeChallengeMethod},
	}
}

func (a *authRequest) GetID() string                         { return a.id }
func (a *authRequest) GetACR() string                        { return "" }
func (a *authRequest) GetCodeChallenge() *oidc.CodeChallenge { return &a.challenge }
func (a *authRequest) GetNonce() string                      { return a.nonce }
func (a *authRequest) GetRedirectURI() string                { return a.redirectURI }
func (a *authRequest) GetResponseType() oidc.ResponseType    { return oidc.ResponseTypeCode }
func (a *authRequest) GetResponseMode() oidc.ResponseMode    { return a.responseMode }
func (a *authRequest) GetState() string                      { return a.state }
func (a *authRequest) Done() bool                            { return a.done }

var (
	errNoAuthRequest = errors.New("the sign-in is unknown, finished or expired")
	errNoCode        = errors.New("the code is unknown or expired")
	errCodeReused    = errors.New("the code was used before")
)

// loginStore holds the sign-ins in progress, and the codes they led to.
type loginStore struct {
	now func() time.Time

	mu      sync.Mutex
	pending *expiringMap[*authRequest]
	codes   *expiringMap[issuedCode]
}

// issuedCode stays until it expires even after it was used, so that a second
// use is noticed.
type issuedCode struct {
	request *authRequest
	used    bool
}

func newLoginStore(now func() time.Time) *loginStore {
	return &loginStore{
		now:     now,
		pending: newExpiringMap[*authRequest](maxAuthRequests, now),
		codes:   newExpiringMap[issuedCode](maxCodes, now),
	}
}

func (l *loginStore) begin(request *authRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.put(request.id, request, l.now().Add(authRequestLifetime))
}

func (l *loginStore) get(id string) (*authRequest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if request, ok := l.pending.get(id); ok {
		return request, nil
	}
	return nil, errNoAuthRequest
}

// complete records who signed in, and names the session that begins. The
// request is replaced rather than changed because others may be reading it.
func (l *loginStore) complete(id string, about account) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	request, ok := l.pending.get(id)
	if !ok || request.done {
		return errNoAuthRequest
	}
	completed := *request
	completed.subject = about.Subject
	completed.authTime = l.now()
	completed.sessionID = uuid.NewString()
	completed.done = true
	l.pending.put(id, &completed, l.now().Add(codeLifetime))
	return nil
}

// issue binds a code to a finished sign-in, which can have only one.
func (l *loginStore) issue(id, code string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	request, ok := l.pending.get(id)
	if !ok || !request.done {
		return errNoAuthRequest
	}
	l.pending.remove(id)
	l.codes.put(code, issuedCode{request: request}, l.now().Add(codeLifetime))
	return nil
}

// redeem uses a code up. With errCodeReused it returns the request as well, because what
// was issued for the code must be revoked.
func (l *loginStore) redeem(code string) (*authRequest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	issued, ok := l.codes.get(code)
	if !ok {
		return nil, errNoCode
	}
	if issued.used {
		return issued.request, errCodeReused
	}
	l.codes.put(code, issuedCode{request: issued.request, used: true}, l.now().Add(codeLifetime))
	return issued.request, nil
}
