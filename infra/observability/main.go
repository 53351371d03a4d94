// Command observability is make observe: a Prometheus beside a running make run, with the
// rules of this folder. METRICS_URL, from .local/env, says where make run has its metrics.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/miniserversystem/miniserver/infra/dev/prometheus"
)

const (
	program = ".local/bin/tools/prometheus"
	port    = 9090 // if it is free
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := observe(ctx, os.Getenv("METRICS_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "make observe:", err)
		os.Exit(1)
	}
}

// observe runs until ctx ends.
func observe(ctx context.Context, metrics string, out io.Writer) error {
	target, err := url.Parse(metrics)
	if err != nil || target.Host == "" {
		return fmt.Errorf("METRICS_URL is %q, not the address of make run's metrics", metrics)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, metrics, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("start make run first: %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	server, err := prometheus.Start(ctx, prometheus.Options{
		Dir: ".local/prometheus", Program: program, Config: "infra/observability",
		Targets: map[string]string{"miniserver": target.Host}, Port: port,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, screen, metrics, server.URL())
	<-ctx.Done()
	return errors.Join(err, server.Stop())
}

// screen tells what to try. Prometheus' pages are not part of its Go module.
const screen = `
Prometheus reads %[1]s. Ctrl-C stops it.

  Alerts    curl -s %[2]s/api/v1/alerts
  Rules     curl -s %[2]s/api/v1/rules
  Query     .local/bin/tools/promtool query instant %[2]s 'sum by (function) (rate(tick_duration_seconds_count[1m]))'

It has its API, and no pages; compose has both, and Grafana: docs/platforms.md#observing

`
