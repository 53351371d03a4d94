// Package prometheus starts a Prometheus with this repository's rules.
package prometheus

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	name = "prometheus" // of its files

	readyTimeout = 30 * time.Second // reading the log of its last samples
	termWait     = 10 * time.Second
)

var inOrder = proc.Step{Signal: syscall.SIGTERM, Wait: termWait}

// Options say where to run Prometheus, and what it reads.
type Options struct {
	// Dir holds its data, configuration and log and is created if missing.
	Dir string
	// Program is its path; make builds it from infra/tools/prometheus.
	Program string
	// Config is the directory of prometheus.yaml and rules.yaml.
	Config string
	// Targets are the addresses of the jobs. Other jobs are left out.
	Targets map[string]string
	// Port to listen on if it is free; 0 for the one used last time, or any.
	Port int
	// Every, if not 0, is how often it reads metrics and evaluates rules, and how long an
	// alert's condition must hold. Expressions stay as they are.
	Every time.Duration
}

// Server is a running Prometheus. It is reachable on loopback only.
type Server struct {
	o     Options
	dir   string
	port  int
	inUse *proc.Held

	stopping sync.Mutex
	running  *proc.Child // nil once stopped
}

// Start returns a Prometheus that answers. A Dir serves one process at a time: a second
// one gets [proc.ErrInUse]. ctx bounds the start only. Errors quote its log.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := home.Make(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	p := &Server{o: o, dir: dir}
	if p.inUse, err = proc.TryLock(p.file(proc.UsersSuffix)); err == nil {
		if err = p.start(ctx); err != nil {
			p.inUse.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start Prometheus in %s: %w", dir, err)
	}
	return p, nil
}

// URL returns where it answers.
func (p *Server) URL() string { return "http://" + proc.Address(p.port) }

// Stop ends it after it has written its data. Calling it again does nothing.
func (p *Server) Stop() error {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	if p.running == nil {
		return nil
	}
	if err := p.running.End(inOrder); err != nil {
		return fmt.Errorf("stop Prometheus in %s: %w", p.dir, err)
	}
	p.running = nil
	return p.inUse.Close()
}

func (p *Server) file(suffix string) string { return filepath.Join(p.dir, name+suffix) }

func (p *Server) start(ctx context.Context) error {
	if err := p.configure(); err != nil {
		return err
	}
	port, err := proc.OnFreePort(p.o.Port, p.file(".port"), func(port int) error {
		p.port = port
		return p.run(ctx)
	})
	p.port = port
	return err
}

func (p *Server) run(ctx context.Context) error {
	program, err := filepath.Abs(p.o.Program)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "--config.file="+p.file(".yaml"), "--storage.tsdb.path="+p.file(""),
		"--web.listen-address="+proc.Address(p.port), "--web.enable-otlp-receiver", "--log.level=warn")
	cmd.Env = proc.Environment("")
	p.running, err = proc.Server{
		Command: cmd, Log: p.file(".log"), Ready: p.ready, Within: readyTimeout, Stop: []proc.Step{inOrder},
	}.Start(ctx)
	return err
}

func (p *Server) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+"/-/ready", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(response.Body)
		return fmt.Errorf("it answers %d %s", response.StatusCode, said)
	}
	return nil
}
