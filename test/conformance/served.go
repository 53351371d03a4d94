package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// Paths are a process's paths for a platform.
type Paths struct{ Liveness, Readiness, Tick string }

// OwnPaths are the functions' own paths.
var OwnPaths = Paths{fn.LivenessPath, fn.ReadinessPath, tick.Path}

// Served are processes that listen, by their functions.
type Served struct {
	Paths    Paths
	Front    string // the process with the gateway
	Address  map[string]string
	Programs []*program.Program
}

var _ Instance = (*Served)(nil)

// FreePort returns a free port on loopback.
func FreePort(t testing.TB) string {
	t.Helper()
	port, err := proc.FreePort(0)
	kit.Must(t, err)
	return strconv.Itoa(port)
}

// oneShot keeps no connections: each request shows who accepts new ones.
var oneShot = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// RoundTrip sends a request to the gateway.
func (s *Served) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = "http", s.Address[s.Front]
	return oneShot.RoundTrip(r)
}

const probeWithin = 5 * time.Second

func (s *Served) send(method, address, path string, within time.Duration) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	response, err := oneShot.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// Probe probes every process.
func (s *Served) Probe(p Probe) (worst int, err error) {
	path := s.Paths.Liveness
	if p == Readiness {
		path = s.Paths.Readiness
	}
	for _, address := range s.Address {
		status, _, err := s.send(http.MethodGet, address, path, probeWithin)
		if err != nil {
			return 0, err
		}
		worst = max(worst, status)
	}
	return worst, nil
}

// Tick ticks a function in its process.
func (s *Served) Tick(function string) error {
	address, ok := s.Address[function]
	if !ok {
		return fmt.Errorf("no process runs %s", function)
	}
	status, body, err := s.send(http.MethodPost, address, s.Paths.Tick, callWithin)
	if err == nil && (status != http.StatusOK || !strings.Contains(body, `"done"`)) {
		err = fmt.Errorf("tick of %s: %d %s", function, status, body)
	}
	return err
}

// Addresses are where the processes listen.
func (s *Served) Addresses() (all []string) {
	for _, address := range s.Address {
		all = append(all, address)
	}
	return all
}

// Terminate sends SIGTERM to every process.
func (s *Served) Terminate() {
	for _, p := range s.Programs {
		p.Terminate()
	}
}

// Wait returns an error unless all processes end within this time with status 0.
func (s *Served) Wait(within time.Duration) error {
	var errs []error
	deadline := time.Now().Add(within)
	for _, p := range s.Programs {
		errs = append(errs, p.Wait(time.Until(deadline)))
	}
	return errors.Join(errs...)
}

// onLoopback returns a port's address on loopback.
func onLoopback(port string) string { return net.JoinHostPort("127.0.0.1", port) }
