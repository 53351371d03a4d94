package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Reasons for WaitReady to give up.
var (
	ErrExited   = errors.New("the server ended")
	ErrNotReady = errors.New("the server does not answer")
)

// WaitReady calls check until it succeeds. It gives up when the process is
// gone (ErrExited), after bound (ErrNotReady), when ctx is done, and when check
// returns an error wrapped by Permanent.
func (c *Child) WaitReady(ctx context.Context, bound time.Duration, check func(context.Context) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, bound, ErrNotReady)
	defer cancel()
	bounded, exited := context.WithCancelCause(bounded)
	defer exited(nil)
	go func() { // a check may be waiting for another program on the port
		select {
		case <-c.Ended:
			exited(ErrExited)
		case <-bounded.Done():
		}
	}()
	for {
		if c.Gone() {
			return ErrExited
		}
		err := check(bounded)
		var final Permanent
		if err == nil || errors.As(err, &final) {
			return err
		}
		if why := Sleep(bounded, pollInterval); why != nil {
			return fmt.Errorf("%w: %w", why, err)
		}
	}
}

// Permanent marks an error that trying again will not cure.
type Permanent struct{ Err error }

func (p Permanent) Error() string { return p.Err.Error() }

func (p Permanent) Unwrap() error { return p.Err }

// Accepts returns a check that a port accepts connections.
func Accepts(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp4", Address(port))
		if err == nil {
			err = conn.Close()
		}
		return err
	}
}
