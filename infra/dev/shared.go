package dev

import (
	"context"
	"errors"
	"log/slog"
	"os"
)

// stopShared ends proc unless other processes use the server too, and leaves
// the users. base is the path of the server's lock files without their suffix.
func stopShared(base string, users *userLock, proc *process, steps []stopStep) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLockTimeout)
	defer cancel()
	// Nobody starts or stops meanwhile: of two that stop at once, the second
	// is then certainly the sole user.
	starting, err := lock(ctx, base+startSuffix)
	if err == nil {
		defer starting.Close()
	} else if !errors.Is(err, os.ErrNotExist) { // deleted under a running server
		return err
	}
	if users.sole() {
		if err := proc.end(steps...); err != nil {
			return err
		}
	}
	return users.close()
}

// logTo writes to log if there is one.
func logTo(log *slog.Logger, ctx context.Context, message string, args ...any) {
	if log != nil {
		log.InfoContext(ctx, message, args...)
	}
}
