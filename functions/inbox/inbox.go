// Package inbox is the function that reads notifications.
package inbox

import (
	"context"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// The routes: the caller's notifications, marking one read, and reading any user's inbox,
// which exists with DEBUG_ENDPOINTS=true only.
var (
	List = fn.Route{
		ID: "list-my-notifications", Method: http.MethodGet, Path: "/v1/me/notifications", Self: true,
		Summary:     "List the caller's notifications",
		Description: "Newest first, whatever their status.",
	}
	Read = fn.Route{
		ID: "mark-notification-read", Method: http.MethodPost, Path: "/v1/me/notifications/{notification_id}/read", Self: true, Bodyless: true,
		Refuses:     []int{http.StatusNotFound},
		Summary:     "Mark a notification read",
		Description: "Sets read_at the first time; may be sent any number of times.",
	}
	Debug = fn.Route{
		ID: "debug-inbox", Method: http.MethodGet, Path: "/debug/notification/inbox/{user_id}",
		Summary:     "Look into a user's inbox",
		Description: "Newest first, whatever their status. Only where DEBUG_ENDPOINTS is true; elsewhere it answers 404.",
		Roles:       []string{auth.RoleOperator},
		Debug:       true,
	}
)

type function struct {
	store *notification.Store
}

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	f := &function{notification.NewStore(pool)}
	fn.Handle(e, List, f.list)
	fn.Handle(e, Read, f.read)
	fn.Handle(e, Debug, f.debug)
	return nil
}

type notifications struct {
	Notifications []notification.Notification `json:"notifications" nullable:"false"`
	fn.NextPage
}

func (f *function) list(ctx context.Context, in *struct{ fn.Page }) (*struct{ Body notifications }, error) {
	list, next, err := f.store.Inbox(ctx, auth.From(ctx).UserID, in.Cursor, in.Limit)
	return &struct{ Body notifications }{notifications{list, fn.NextPage{NextCursor: next}}}, err
}

type readRequest struct {
	NotificationID string `path:"notification_id" maxLength:"64" doc:"Which." example:"n_01h455vb4pex5vsknk084sn02q"`
}

func (f *function) read(ctx context.Context, in *readRequest) (*struct{ Body notification.Notification }, error) {
	read, err := f.store.MarkRead(ctx, auth.From(ctx).UserID, in.NotificationID)
	return &struct{ Body notification.Notification }{read}, err
}

type debugRequest struct {
	fn.UserPath
	fn.Page
}

type debugInbox struct {
	UserID        string                      `json:"user_id" example:"u_123"`
	Notifications []notification.Notification `json:"notifications" nullable:"false"`
	fn.NextPage
}

func (f *function) debug(ctx context.Context, in *debugRequest) (*struct{ Body debugInbox }, error) {
	list, next, err := f.store.Inbox(ctx, in.UserID, in.Cursor, in.Limit)
	return &struct{ Body debugInbox }{debugInbox{in.UserID, list, fn.NextPage{NextCursor: next}}}, err
}
