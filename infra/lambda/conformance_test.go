//go:build conformance

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/test/conformance"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	noListener = "Lambda probes nothing; a store that is away shows in answers"
	noDrain    = "Lambda ends a process between two invocations, never during one; `TestSIGTERM` of `infra/lambda` has how"
)

// The program of Lambda, under a Runtime API: HTTP comes by a function URL, ticks by
// scheduled events.
func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Adapter{
		Name: "Lambda", Ticked: true,
		Start: func(t testing.TB, environment map[string]string, _ ...string) conformance.Instance {
			return &onLambda{t: t, environment: environment, idle: map[string][]*process{}}
		},
		Refuse: func(t testing.TB, environment map[string]string) (int, string) {
			p := startProcess(t, environment)
			var exit *exec.ExitError
			if err := p.wantEnd(20 * time.Second); !errors.As(err, &exit) {
				kit.Must(t, err)
				return 0, p.Printed()
			}
			return exit.ExitCode(), p.Printed()
		},
		Without: map[string]string{
			"probes follow the stores": noListener, "drain on SIGTERM": noDrain, "SIGTERM ends streams": noDrain,
		},
	})
}

// onLambda starts a process for each invocation that finds none idle, as Lambda does.
type onLambda struct {
	t           testing.TB
	environment map[string]string

	mutex sync.Mutex
	idle  map[string][]*process // by FUNCTION
}

var _ conformance.Instance = (*onLambda)(nil)

func (l *onLambda) take(function string) *process {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if n := len(l.idle[function]); n > 0 {
		p := l.idle[function][n-1]
		l.idle[function] = l.idle[function][:n-1]
		return p
	}
	environment := maps.Clone(l.environment)
	if function != "" {
		environment["FUNCTION"] = function
	}
	return startProcess(l.t, environment)
}

func (l *onLambda) give(function string, p *process) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.idle[function] = append(l.idle[function], p)
}

// RoundTrip sends r as the event of a function URL.
func (l *onLambda) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	event := request{
		method: r.Method, path: r.URL.EscapedPath(), query: r.URL.RawQuery,
		body: base64.StdEncoding.EncodeToString(body), encoded: true, headers: map[string]string{},
	}
	for name, values := range r.Header {
		if name == "Cookie" {
			event.cookies = strings.Split(strings.Join(values, "; "), "; ")
			continue
		}
		event.headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	p := l.take("")
	timeout := time.Minute
	if deadline, ok := r.Context().Deadline(); ok {
		timeout = time.Until(deadline)
	}
	prelude, rest := readPrelude(l.t, p.wait(p.begin(event.url(), timeout)))
	answer := &http.Response{
		StatusCode: prelude.StatusCode, Status: http.StatusText(prelude.StatusCode), Header: http.Header{}, Request: r,
		Body: &streamed{Reader: rest, end: func() { l.give("", p) }},
	}
	for name, value := range prelude.Headers {
		answer.Header.Set(name, value)
	}
	for _, cookie := range prelude.Cookies {
		answer.Header.Add("Set-Cookie", cookie)
	}
	return answer, nil
}

// streamed is the body of an answer, whose process is idle at its end.
type streamed struct {
	io.Reader
	once sync.Once
	end  func()
}

func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		s.once.Do(s.end)
	}
	return n, err
}

// Close leaves a body that was not read to its process: Lambda, too, does not report that
// the client is gone.
func (s *streamed) Close() error { return nil }

// Tick sends a scheduled event to the process that is the function.
func (l *onLambda) Tick(function string) error {
	p := l.take(function)
	answer, body := p.invoke(tickEvent(l.t, "{}"), time.Minute)
	l.give(function, p)
	var report lease.Report
	if answer.failed || json.NewDecoder(bytes.NewReader(body)).Decode(&report) != nil {
		return fmt.Errorf("tick of %s: %s", function, body)
	}
	return nil
}

// Probe asks by a function URL; Lambda itself sends no probes.
func (l *onLambda) Probe(probe conformance.Probe) (int, error) {
	path := map[conformance.Probe]string{conformance.Liveness: fn.LivenessPath, conformance.Readiness: fn.ReadinessPath}[probe]
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway"+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := l.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func (l *onLambda) Addresses() []string { return nil }

func (l *onLambda) Terminate() {}

func (l *onLambda) Wait(time.Duration) error { return errors.New("nobody told it to end") }
