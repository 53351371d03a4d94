package keycloak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	readyTimeout = 3 * time.Minute
	readyPoll    = 100 * time.Millisecond
	askTimeout   = 10 * time.Second
)

var (
	errPortTaken = errors.New("the port was taken by another program")
	errEnded     = errors.New("it ended while it was starting")
	errNotReady  = fmt.Errorf("it does not answer after %v", readyTimeout)
)

// waitReady returns nil when the realm answers.
func (s *Server) waitReady(ctx context.Context, running *process, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errNotReady)
	defer cancel()
	began, told := time.Now(), time.Now()
	for {
		if s.answers(ctx) {
			return nil
		}
		if time.Since(told) >= progressEvery {
			told = time.Now()
			fmt.Fprintf(out, "keycloak: starting since %.0f s\n", time.Since(began).Seconds())
		}
		select {
		case <-running.Ended:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(readyPoll):
		}
	}
}

// answers asks as our administrator: on our port may be another's Keycloak.
func (s *Server) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.admin.call(ctx, http.MethodGet, "", nil, nil) == nil
}

// explain adds what Keycloak printed, unless it was not Keycloak's fault.
func explain(ctx context.Context, err error, log string) error {
	if ctx.Err() != nil {
		return err
	}
	printed, _ := os.ReadFile(log)
	if strings.Contains(string(printed), "already bound") || strings.Contains(string(printed), "Address already in use") {
		return errPortTaken
	}
	return fmt.Errorf("%w; the end of its log:\n%s", err, lastLines(string(printed)))
}
