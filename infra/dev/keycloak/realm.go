package keycloak

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	realmfile "github.com/miniserversystem/miniserver/infra/keycloak"
)

const (
	realmName = "miniserver"
	// listSeparator is what Keycloak puts between the URIs of one attribute.
	listSeparator = "##"
)

// configure returns the realm with the options applied.
func configure(o Options) ([]byte, error) {
	if o.AccessTokenLifetime < 0 || o.AccessTokenLifetime%time.Second != 0 {
		return nil, errors.New("AccessTokenLifetime has to be whole seconds")
	}
	var made map[string]any
	if err := json.Unmarshal(realmfile.Realm, &made); err != nil {
		return nil, err
	}
	if o.AccessTokenLifetime > 0 {
		made["accessTokenLifespan"] = int(o.AccessTokenLifetime / time.Second)
	}
	web, err := clientOf(made, issuer.WebClientID)
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
	return json.Marshal(made)
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
