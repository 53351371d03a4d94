// Command local is make run: private Postgres, Redis, NATS and sign-in issuer,
// all functions and their schedule, in one process and with one command. A
// server that DATABASE_URL, REDIS_URL, NATS_URL or OIDC_ISSUER names is used
// instead of a private one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	l := &Local{Dir: ".local", Out: os.Stdout}
	if err := l.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}
