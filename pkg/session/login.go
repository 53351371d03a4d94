package session

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// LoginLifetime is how long a sign-in may be in progress.
const LoginLifetime = 10 * time.Minute

// ErrLogin is the error for a state that TakeLogin cannot redeem.
var ErrLogin = fault.New(fault.Malformed, "login_state_invalid",
	"This sign-in was begun in another browser, was used already or took longer than 10 minutes; start again at /login.")

// Login is the state of a sign-in while the browser is at the issuer.
type Login struct {
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // PKCE's
	ReturnTo string `json:"return_to"`
	LinkTo   string `json:"link_to"` // the user to link a further identity to, or ""
}

func loginBox(state string, secret []byte) box {
	return newBox(keyPrefix+"login:{"+digest(state)+"}", secret, "login encryption")
}

// BeginLogin stores login for LoginLifetime. state goes to the issuer, secret into a
// cookie of this browser; both are new and random, so that several tabs can sign in at
// once if their cookies have different names. secret encrypts the stored login, so that
// the state alone completes no sign-in.
func (s *Store) BeginLogin(ctx context.Context, login Login) (state, secret string, err error) {
	_, state = newSecret()
	key, secret := newSecret()
	b := loginBox(state, key)
	sealed, err := b.seal(login)
	if err != nil {
		return "", "", err
	}
	if err := s.client.Set(ctx, b.key, sealed, LoginLifetime).Err(); err != nil {
		return "", "", unreachable("store a sign-in", err)
	}
	return state, secret, nil
}

// TakeLogin returns the stored login, once; otherwise ErrLogin. Another browser, which
// has the state and not the secret, does not use it up.
func (s *Store) TakeLogin(ctx context.Context, state, secret string) (Login, error) {
	key, ok := parseSecret(secret)
	if !ok {
		return Login{}, ErrLogin
	}
	b := loginBox(state, key)
	var login Login
	// First check whether it opens, then take it: of several callers, one takes it.
	for _, get := range []func(context.Context, string) *redis.StringCmd{s.client.Get, s.client.GetDel} {
		sealed, err := get(ctx, b.key).Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return Login{}, unreachable("take a sign-in", err)
		}
		if !b.open(sealed, &login) {
			return Login{}, ErrLogin
		}
	}
	return login, nil
}
