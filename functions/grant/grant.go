// Package grant is the function that gives a user something, by request or
// because a purchase was completed.
package grant

import (
	"net/http"

	"github.com/miniserversystem/miniserver/functions/internal/change"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// Event is the CloudEvents type of a purchase that grants.
const Event = "purchase.completed"

// Route is where requests come in.
var Route = fn.Route{
	ID: "grant-entitlement", Method: http.MethodPost, Path: "/v1/entitlements/grants",
	Summary: "Grant an entitlement",
	Description: "Gives a user something, whether it was never owned, revoked, or owned already; the version grows by one. " +
		"The change, its audit record, its event and this answer are committed together.",
	Roles:   []string{auth.RoleEntitlementWriter},
	Refuses: []int{http.StatusConflict, http.StatusPreconditionFailed},
}

// New registers the function.
func New(e *fn.Env) error {
	return change.Register(e, Route, entitlement.GrantOperation, (*entitlement.Store).Grant)
}
