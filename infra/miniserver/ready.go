package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

const (
	// readyTimeout is longer than the server waits for a store, so that its answer is
	// quoted, and shorter than compose.yaml waits.
	readyTimeout = 3 * time.Second
	// maxReadyBytes is how much of an answer an error quotes.
	maxReadyBytes = 512
)

// ready asks the server on PORT of this machine whether its stores have answered. It
// is for engines that check health by a program in the container: the image has no
// other, no shell and no curl. The error quotes the answer.
func ready(ctx context.Context, _ []string, _ io.Writer) error {
	s, err := settings.Load()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	address := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) + "/health/readiness"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	// Not the default client's: that would use the environment's proxy.
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxReadyBytes))
		return fmt.Errorf("not ready: %s %s", response.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
