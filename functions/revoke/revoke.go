// Package revoke is the function that takes something away from a user, by
// request or because a purchase was refunded.
package revoke

import (
	"net/http"

	"github.com/miniserversystem/miniserver/functions/internal/change"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// Event is the CloudEvents type of a refund, which revokes.
const Event = "purchase.refunded"

// Route is where requests come in.
var Route = fn.Route{
	ID: "revoke-entitlement", Method: http.MethodPost, Path: "/v1/entitlements/revokes",
	Summary: "Revoke an entitlement",
	Description: "Takes something away from a user; the version grows by one. What was never granted is created REVOKED at version 1. " +
		"The change, its audit record, its event and this answer are committed together.",
	Roles:   []string{auth.RoleEntitlementWriter},
	Refuses: []int{http.StatusConflict, http.StatusPreconditionFailed},
}

// New registers the function.
func New(e *fn.Env) error {
	return change.Register(e, Route, entitlement.RevokeOperation, (*entitlement.Store).Revoke)
}
