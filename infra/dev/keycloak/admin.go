package keycloak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	// adminClientID is a service account that Keycloak makes for the administration of
	// all realms when it first starts.
	adminClientID = "miniserver-admin"

	// adminTimeout leaves room for a logout that waits for the back channel.
	adminTimeout    = 30 * time.Second
	maxAdminAnswer  = 1 << 20 // bytes
	maxQuotedAnswer = 300     // bytes
)

// admin calls Keycloak's admin API.
type admin struct{ base, secret string }

// EndSessions signs a user out everywhere, as an administrator would. When it returns,
// the sessions have ended, their refresh tokens are revoked, and the web client was
// notified over the back channel. An unknown user is an error, one without sessions is
// not.
func (s *Server) EndSessions(ctx context.Context, username string) error {
	id, err := s.admin.userID(ctx, username)
	if err != nil {
		return err
	}
	return s.admin.call(ctx, http.MethodPost, "/users/"+id+"/logout", nil, nil)
}

func (a admin) userID(ctx context.Context, username string) (string, error) {
	var found []struct {
		ID string `json:"id"`
	}
	query := url.Values{"username": {username}, "exact": {"true"}}
	if err := a.call(ctx, http.MethodGet, "/users?"+query.Encode(), nil, &found); err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("keycloak: there is no user %q", username)
	}
	return found[0].ID, nil
}

// RotateKeys makes a new signing key, with which all later tokens are signed. Older keys
// stay in the JWKS, so tokens that they signed still verify.
func (s *Server) RotateKeys(ctx context.Context) error {
	now := fmt.Sprint(time.Now().UnixMilli())
	return s.admin.call(ctx, http.MethodPost, "/components", map[string]any{
		"name": "rotated-" + now, "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
		"config": map[string][]string{
			"priority": {now}, // the highest signs
			"keySize":  {"2048"}, "algorithm": {"RS256"}, "active": {"true"}, "enabled": {"true"},
		},
	}, nil)
}

// call sends one request about the realm, and reads the answer into answer unless that
// is nil.
func (a admin) call(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+"/admin/realms/"+realmName+path, bytes.NewReader(payload))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	// A new token for each call: Keycloak's admin tokens live for a minute only.
	config := clientcredentials.Config{
		ClientID: adminClientID, ClientSecret: a.secret, TokenURL: a.base + "/realms/master/protocol/openid-connect/token",
	}
	response, err := config.Client(ctx).Do(request)
	if err != nil {
		return fmt.Errorf("keycloak: %w", err)
	}
	defer response.Body.Close()
	printed, err := io.ReadAll(io.LimitReader(response.Body, maxAdminAnswer))
	if err != nil {
		return fmt.Errorf("keycloak: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("keycloak: %s %s answered %s: %.*s", method, path, response.Status, maxQuotedAnswer, printed)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(printed, answer)
}
