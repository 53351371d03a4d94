// Package issuer is an OpenID Connect issuer for development and tests.
//
// It makes sign-in work out of the box: users, clients and roles are seeded,
// everything runs in this process, and the protocol itself is done by
// github.com/zitadel/oidc. Keycloak is its production counterpart; the names
// of users, roles, clients and claims are the same, so that a program which
// works against one works against the other.
//
// The passwords and secrets are published in this package. Never expose an
// issuer of this package to a network: [Start] refuses any address that is not
// a loopback one.
//
// State is kept in memory and is bounded. After a restart sessions, codes and
// refresh tokens are gone; with [Options].KeyDir set, access tokens and ID
// tokens issued before still verify.
package issuer
