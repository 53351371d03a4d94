package issuer

import (
	"context"
	"errors"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
)

var errUnsupported = errors.New("not supported by this issuer")

// unsupported is the part of the library's storage which this issuer has no use
// for: JWT client assertions, and older forms of methods it does have.
type unsupported struct{}

func (unsupported) Health(context.Context) error { return nil }

func (unsupported) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errUnsupported
}

func (unsupported) ValidateJWTProfileScopes(context.Context, string, []string) ([]string, error) {
	return nil, errUnsupported
}

// SetUserinfoFromScopes must succeed; SetUserinfoFromRequest does the work.
func (unsupported) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

func (unsupported) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, errUnsupported
}
