package keycloak

import (
	_ "embed"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

const (
	realmName = "miniserver"
	// listSeparator is what Keycloak puts between the URIs of one attribute.
	listSeparator = "##"
)

// realmFile is the realm as it is for people who run Keycloak themselves; the web
// client's addresses are those of `make run`.
//
//go:embed realm.json
var realmFile []byte

// configure returns the realm with the options' differences.
func configure(o Options) ([]byte, error) {
	if o.AccessTokenLifetime < 0 || o.AccessTokenLifetime%time.Second != 0 {
		return nil, errors.New("AccessTokenLifetime has to be whole seconds")
	}
	var realm map[string]any
	if err := json.Unmarshal(realmFile, &realm); err != nil {
		return nil, err
	}
	if o.AccessTokenLifetime > 0 {
		realm["accessTokenLifespan"] = int(o.AccessTokenLifetime / time.Second)
	}
	web, err := clientOf(realm, issuer.WebClientID)
	if err != nil {
		return nil, err
	}
	if len(o.RedirectURIs) > 0 {
		web["redirectUris"] = o.RedirectURIs
	}
	attributes, ok := web["attributes"].(map[string]any)
	if !ok {
		return nil, errors.New("realm.json: the web client has no attributes")
	}
	if len(o.PostLogoutRedirectURIs) > 0 {
		attributes["post.logout.redirect.uris"] = strings.Join(o.PostLogoutRedirectURIs, listSeparator)
	}
	if attributes["backchannel.logout.url"] = o.BackChannelLogoutURL; o.BackChannelLogoutURL == "" {
		delete(attributes, "backchannel.logout.url")
	}
	return json.Marshal(realm)
}

func clientOf(realm map[string]any, id string) (map[string]any, error) {
	clients, _ := realm["clients"].([]any)
	for _, entry := range clients {
		if client, ok := entry.(map[string]any); ok && client["clientId"] == id {
			return client, nil
		}
	}
	return nil, errors.New("realm.json: no client " + id)
}
