// Package keycloak holds the realm of this system for Keycloak: users, clients, roles
// and claims like those of the development issuer. The passwords and secrets in it are
// published.
package keycloak

import _ "embed"

// Realm is what Keycloak imports; the web client's addresses are those of `make run`.
//
//go:embed realm.json
var Realm []byte
