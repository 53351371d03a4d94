package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// leaveTimeout bounds how long Stop waits for another process that is just starting or
// stopping the same server.
const leaveTimeout = 30 * time.Second

// leave ends the server unless other processes use it too, and leaves its users.
func (p *Server) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	// No other process starts or stops meanwhile: of two that stop at once, the second is
	// then certainly the sole user.
	starting, err := proc.Lock(ctx, filepath.Join(p.dir, name+proc.StartSuffix))
	if err == nil {
		defer starting.Close()
	} else if !errors.Is(err, os.ErrNotExist) { // deleted under a running server
		return err
	}
	if p.users.Sole() {
		if err := p.running.End(fast, immediate); err != nil {
			return err
		}
	}
	return p.users.Close()
}
