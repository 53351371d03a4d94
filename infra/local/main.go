// Command local is make run: private Postgres, Redis, NATS and sign-in issuer,
// all functions and their schedule, in one process and with one command. A
// server that DATABASE_URL, REDIS_URL, NATS_URL or OIDC_ISSUER names is used
// instead of a private one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	clean := flag.Bool("clean", false, "remove everything that make run and make test keep, and end")
	flag.Parse()
	l := &Local{Dir: ".local", Programs: ".local/deps", Out: os.Stdout}
	do := l.Run
	if *clean {
		do = l.Clean
	}
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}
