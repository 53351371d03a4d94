package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"knative.dev/func/pkg/functions"
	scaffold "knative.dev/func/pkg/scaffolding"
)

const (
	usualAddress = "127.0.0.1:8080"
	// endWithin is how long a function may take after SIGTERM; the scaffolding gives
	// it 30 s for its requests and 30 s for its Stop.
	endWithin = 65 * time.Second
	// readyPoll is how often a starting function is asked whether it is ready.
	readyPoll = 10 * time.Millisecond
)

// runner runs functions in Go as processes of this machine.
type runner struct {
	address string
}

// Run builds f, starts it and returns when it is ready. Its error says when the
// process ended before that, or was not ready within the timeout.
func (r *runner) Run(ctx context.Context, f functions.Function, timeout time.Duration) (*functions.Job, error) {
	if f.Runtime != "go" {
		return nil, functions.ErrRunnerNotImplemented{Runtime: f.Runtime}
	}
	host, port, err := free(r.address)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var process *exec.Cmd
	stop := func() error {
		if process == nil || process.Process == nil {
			return nil
		}
		_ = process.Process.Signal(syscall.SIGTERM) // fails when it has ended
		select {
		case <-ended:
			return nil
		case <-time.After(endWithin):
			return errors.Join(fmt.Errorf("the function did not end within %s", endWithin), process.Process.Kill())
		}
	}
	job, err := functions.NewJob(f, host, port, nil, stop, false)
	if err != nil {
		return nil, err
	}
	files, err := scaffolding(f.Root)
	if err != nil {
		return nil, err
	}
	if err := scaffold.Write(job.Dir(), f.Root, f.Runtime, f.Invoke, files); err != nil {
		return nil, err
	}
	if err := modMod(ctx); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", "f.bin")
	build.Dir, build.Stdout, build.Stderr = job.Dir(), os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	settings, err := functions.Interpolate(f.Run.Envs)
	if err != nil {
		return nil, err
	}
	process = exec.Command(filepath.Join(job.Dir(), "f.bin"))
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it must not outlive this program
	process.Dir, process.Stdout, process.Stderr = f.Root, os.Stdout, os.Stderr
	process.Env = append(os.Environ(), "LISTEN_ADDRESS="+net.JoinHostPort(host, port), "PORT="+port)
	for name, value := range settings {
		process.Env = append(process.Env, name+"="+value)
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	go func() {
		err := process.Wait()
		close(ended)
		job.Errors <- err
	}()
	if err := ready(ctx, "http://"+net.JoinHostPort(host, port)+"/health/readiness", timeout, ended); err != nil {
		return nil, errors.Join(err, job.Stop())
	}
	return job, nil
}

// free returns the host and port of address, or of the usual one, or of any free one
// where the usual is taken.
func free(address string) (host, port string, err error) {
	if address != "" {
		return net.SplitHostPort(address)
	}
	listener, err := net.Listen("tcp", usualAddress)
	if err != nil {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", "", err
		}
	}
	defer listener.Close()
	return net.SplitHostPort(listener.Addr().String())
}

func ready(ctx context.Context, url string, timeout time.Duration, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the function is not ready after %s", timeout))
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ended:
			return errors.New("the function ended before it was ready; see above")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(readyPoll):
		}
	}
}
