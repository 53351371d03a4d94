package migrations

import (
	"context"
	"time"
)

// GrantWithin is Grant with other limits.
func GrantWithin(ctx context.Context, url, login string, role Role, statement, idle time.Duration) error {
	return grant(ctx, url, login, role, limits(statement, idle))
}
