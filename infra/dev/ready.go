package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Reasons for waitReady to give up.
var (
	errExited   = errors.New("the server ended")
	errNotReady = errors.New("the server does not answer")
)

// waitReady calls check until it succeeds. It gives up when the process is
// gone (errExited), after bound (errNotReady), when ctx is done, and when check
// returns an error wrapped by permanent.
func (p *process) waitReady(ctx context.Context, bound time.Duration, check func(context.Context) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, bound, errNotReady)
	defer cancel()
	bounded, exited := context.WithCancelCause(bounded)
	defer exited(nil)
	go func() { // a check may be waiting for whoever else has the port
		select {
		case <-p.exited:
			exited(errExited)
		case <-bounded.Done():
		}
	}()
	for {
		if p.gone() {
			return errExited
		}
		err := check(bounded)
		var final permanent
		if err == nil || errors.As(err, &final) {
			return err
		}
		if why := sleep(bounded, pollInterval); why != nil {
			return fmt.Errorf("%w: %w", why, err)
		}
	}
}

// permanent marks an error that trying again will not cure.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// accepts is a check that somebody takes connections on a port.
func accepts(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp4", hostPort(port))
		if err == nil {
			err = conn.Close()
		}
		return err
	}
}
