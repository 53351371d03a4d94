// Package entitlements is the function that reads what users own.
package entitlements

import (
	"context"
	"net/http"
	"strconv"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/fn"
)

// The routes: a user's entitlements, one of them, and its history.
var (
	List = fn.Route{
		ID: "list-entitlements", Method: http.MethodGet, Path: "/v1/users/{user_id}/entitlements",
		Self: true, AnyUserRoles: []string{auth.RoleEntitlementWriter, auth.RoleOperator},
		Refuses:     []int{http.StatusNotFound},
		Summary:     "List a user's entitlements",
		Description: "By stock_keeping_unit. Players see their own, entitlement writers and operators anyone's; a user of whom nothing is known has an empty list.",
	}
	Get = fn.Route{
		ID: "get-entitlement", Method: http.MethodGet, Path: "/v1/users/{user_id}/entitlements/{stock_keeping_unit}",
		Self: true, AnyUserRoles: []string{auth.RoleEntitlementWriter, auth.RoleOperator},
		Refuses:     []int{http.StatusNotFound},
		Summary:     "Read one entitlement",
		Description: "The ETag is its version, for If-Match.",
	}
	History = fn.Route{
		ID: "get-entitlement-history", Method: http.MethodGet, Path: "/v1/users/{user_id}/entitlements/{stock_keeping_unit}/history",
		Summary:     "Read an entitlement's history",
		Description: "Every change from the audit, newest first.",
		Roles:       []string{auth.RoleOperator},
	}
)

type function struct {
	store *entitlement.Store
}

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("entitlement")
	if err != nil {
		return err
	}
	f := &function{entitlement.NewStore(pool, e.Settings.IdempotencyRetention)}
	fn.Handle(e, List, f.list)
	fn.Handle(e, Get, f.get, fn.Versioned)
	fn.Handle(e, History, f.history)
	return nil
}

type listRequest struct {
	fn.UserPath
	fn.Page
}

type entitlementList struct {
	UserID       string                    `json:"user_id" example:"u_123"`
	Entitlements []entitlement.Entitlement `json:"entitlements" nullable:"false"`
	fn.NextPage
}

func (f *function) list(ctx context.Context, in *listRequest) (*struct{ Body entitlementList }, error) {
	if !List.MayReach(auth.From(ctx), in.UserID) {
		return nil, entitlement.ErrNotFound
	}
	list, next, err := f.store.List(ctx, in.UserID, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &struct{ Body entitlementList }{entitlementList{in.UserID, list, fn.NextPage{NextCursor: next}}}, nil
}

// ItemPath is the path of one entitlement. It is exported because huma fills
// exported embedded structs only.
type ItemPath struct {
	fn.UserPath
	StockKeepingUnit string `path:"stock_keeping_unit" minLength:"1" maxLength:"128" format:"printable" doc:"What." example:"item1"`
}

type item struct {
	ETag string `header:"ETag" hidden:"true"`
	Body entitlement.Changed
}

func (f *function) get(ctx context.Context, in *ItemPath) (*item, error) {
	if !Get.MayReach(auth.From(ctx), in.UserID) {
		return nil, entitlement.ErrNotFound
	}
	e, err := f.store.Get(ctx, in.UserID, in.StockKeepingUnit)
	if err != nil {
		return nil, err
	}
	return &item{strconv.Quote(strconv.FormatInt(e.Version, 10)), entitlement.Changed{UserID: in.UserID, Entitlement: e}}, nil
}

type historyRequest struct {
	ItemPath
	fn.Page
}

type history struct {
	UserID           string                `json:"user_id" example:"u_123"`
	StockKeepingUnit string                `json:"stock_keeping_unit" example:"item1"`
	Changes          []entitlement.Audited `json:"changes" nullable:"false"`
	fn.NextPage
}

func (f *function) history(ctx context.Context, in *historyRequest) (*struct{ Body history }, error) {
	changes, next, err := f.store.History(ctx, in.UserID, in.StockKeepingUnit, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	return &struct{ Body history }{history{in.UserID, in.StockKeepingUnit, changes, fn.NextPage{NextCursor: next}}}, nil
}
