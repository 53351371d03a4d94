// Package inbox is the function that reads notifications.
package inbox

import (
	"context"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/notification"
)

// Debug is a look into anybody's inbox. It exists with DEBUG_ENDPOINTS=true only.
var Debug = fn.Route{
	ID: "debug-inbox", Method: http.MethodGet, Path: "/debug/notification/inbox/{user_id}",
	Summary:     "Look into a user's inbox",
	Description: "Newest first, whatever their status. Only where DEBUG_ENDPOINTS is true; elsewhere it answers 404.",
	Roles:       []string{auth.RoleOperator},
	Debug:       true,
}

type request struct {
	fn.UserPath
	fn.Page
}

type debugInbox struct {
	UserID        string                      `json:"user_id" example:"u_123"`
	Notifications []notification.Notification `json:"notifications" nullable:"false"`
	NextCursor    string                      `json:"next_cursor,omitempty" doc:"Pass it as cursor to get the next page; absent on the last."`
}

// New registers the function.
func New(e *fn.Env) error {
	pool, err := e.Postgres(e.Function.Domain)
	if err != nil {
		return err
	}
	store := notification.NewStore(pool)
	fn.Handle(e, Debug, func(ctx context.Context, in *request) (*struct{ Body debugInbox }, error) {
		ctx, cancel := context.WithTimeout(ctx, e.Function.Timeout)
		defer cancel()
		list, next, err := store.Inbox(ctx, in.UserID, in.Cursor, in.Limit)
		if err != nil {
			return nil, err
		}
		return &struct{ Body debugInbox }{debugInbox{in.UserID, list, next}}, nil
	})
	return nil
}
