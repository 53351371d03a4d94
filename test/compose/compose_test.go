//go:build docker

// compose.yaml with a real Docker engine, as people use it:
//
//	go test -tags docker -v ./test/compose
//
// It needs root and the ports of compose.yaml. The engine is the test's own, kept in
// .local/docker; stand-ins take the place of published images (test/standin).
package compose_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/test/deployed"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/standin"
	"github.com/miniserversystem/miniserver/test/system"
)

const (
	upWithin   = 15 * time.Minute // the first time, images are built
	soonWithin = 3 * time.Minute
)

// project is compose.yaml in an engine.
type project struct {
	t *testing.T
	deployed.System
}

// compose runs docker compose, and fails the test if it fails.
func (p *project) compose(arguments ...string) string {
	p.t.Helper()
	out, err := p.try(arguments...)
	if err != nil {
		p.t.Fatalf("docker compose %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return out
}

func (p *project) try(arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), upWithin)
	defer cancel()
	command := p.Engine.Command(ctx, append([]string{"compose"}, arguments...)...)
	command.Dir = p.Root
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	err := command.Run()
	if err != nil {
		return out.String() + said.String()[max(0, said.Len()-6000):], err
	}
	return out.String(), nil
}

func start(t *testing.T) *project {
	t.Helper()
	p := &project{t: t, System: deployed.Start(t, "http://127.0.0.1:8080", "http://keycloak.localhost:8082/realms/miniserver")}
	kit.Must(t, p.Engine.Plugin(filepath.Join(p.Root, ".local", "bin", "tools", "docker-compose")))
	p.Say("%s", strings.TrimSpace(p.compose("version")))
	t.Cleanup(func() { p.compose("down", "--volumes", "--remove-orphans") })
	p.compose("down", "--volumes", "--remove-orphans") // what a run that was killed left
	names := strings.Fields(p.compose("config", "--images"))
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "miniserver-") }) // built by compose
	p.Say("stand-ins for published images:")
	kit.Must(t, standin.Builder{Engine: p.Engine, Root: p.Root, Progress: os.Stderr}.Build(t.Context(), append(names, p.bases()...)...))
	return p
}

var from = regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)`)

// bases are the images that ours is made of.
func (p *project) bases() (names []string) {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.Root, "infra", "image", "Dockerfile"))
	kit.Must(p.t, err)
	version := regexp.MustCompile(`ARG GO_VERSION=(\S+)`).FindSubmatch(content)
	for _, m := range from.FindAllSubmatch(content, -1) {
		names = append(names, strings.ReplaceAll(string(m[1]), "${GO_VERSION}", string(version[1])))
	}
	return names
}

// container is one of the project, as docker compose ps says.
type container struct {
	ID, Service, State, Health string
	ExitCode                   int
}

func (p *project) containers() (all []container) {
	p.t.Helper()
	for line := range strings.Lines(p.compose("ps", "--all", "--format", "json")) {
		var c container
		kit.Must(p.t, json.Unmarshal([]byte(line), &c))
		all = append(all, c)
	}
	return all
}

// healthy reports whether every service is, and migrate has ended well.
func (p *project) healthy() bool {
	all := p.containers()
	return len(all) == 6 && !slices.ContainsFunc(all, func(c container) bool {
		if c.Service == "migrate" {
			return c.State != "exited" || c.ExitCode != 0
		}
		return c.State != "running" || c.Health != "healthy"
	})
}

// call sends a request of the purchase service, and returns the answer's body.
func (p *project) call(method, path, key, body string) string {
	p.t.Helper()
	status, answer, err := p.Do(p.t.Context(), p.Token(p.t), method, path, key, body)
	if err != nil || status != http.StatusOK {
		p.t.Fatalf("%s %s is answered %d %s, %v", method, path, status, answer, err)
	}
	return answer
}

// Everything starts with one command and works from this machine: a grant and its
// notification, a match, a transfer, and signing in at Keycloak in a browser. What was
// written survives down and up, and the crash of each container.
func TestCompose(t *testing.T) {
	p := start(t)
	p.Say("docker compose up")
	p.compose("up", "--detach", "--wait")
	if !p.healthy() {
		t.Fatalf("not all services are healthy: %+v", p.containers())
	}
	p.Say("all services are healthy")
	p.Examples(t)
	p.Say("the examples")
	p.Browser(t)
	p.Say("signed in at Keycloak, in Chromium")
	user := "u_" + uuid.NewString()
	p.call(http.MethodPost, system.GrantsPath, user, system.ChangeBody(user, "item1", "purchase", user))
	owned := "/v1/users/" + user + "/entitlements"
	before := p.call(http.MethodGet, owned, "", "")

	p.compose("down")
	p.Say("down")
	p.compose("up", "--detach", "--wait")
	p.Say("up again")
	if after := p.call(http.MethodGet, owned, "", ""); after != before {
		t.Errorf("%s was %s before down and up, and is %s", owned, before, after)
	}

	for _, c := range p.containers() {
		if c.Service == "migrate" {
			continue
		}
		p.crash(c)
		p.Examples(t)
	}
}

// What a mistake in the environment looks like: up fails, and the log or the health of the
// service says which setting is wrong. The servers and their data stay.
func TestComposeMistakes(t *testing.T) {
	p := start(t)
	p.compose("up", "--detach", "--wait")
	p.Say("all services are healthy")
	for _, c := range []struct{ service, setting, value, says string }{
		// Of migrate compose says the status, of the functions their health.
		{"migrate", "MIGRATION_DATABASE_URL", "postgres://miniserver:wrong@postgres:5432/miniserver", "the database is that of MIGRATION_DATABASE_URL"},
		{"miniserver", "TRANSFER_BROKER", "kafka", "TRANSFER_BROKER must be jetstream or rabbitmq"},
		{"miniserver", "NOTIFICATION_DATABASE_URL", "postgres://miniserver_notification:miniserver@elsewhere:5432/miniserver", "NOTIFICATION_DATABASE_URL"},
		{"miniserver", "REDIS_URL", "redis://functions:miniserver@redis:6380/0", "REDIS_URL"},
		{"miniserver", "NATS_URL", "nats://functions:wrong@nats:4222", "NATS_URL"},
	} {
		override := filepath.Join(t.TempDir(), "override.yaml")
		kit.Must(t, os.WriteFile(override, fmt.Appendf(nil, "services: {%s: {environment: {%s: %q}, healthcheck: {retries: 3}}}\n", c.service, c.setting, c.value), 0o644))
		files := []string{"--file", "compose.yaml", "--file", override, "--project-directory", "."}
		if out, err := p.try(append(files, "up", "--detach", "--wait", "--no-build")...); err == nil {
			t.Errorf("%s=%s: everything is up\n%s", c.setting, c.value, out)
		} else if ends := map[string]string{"migrate": `service "migrate" didn't complete successfully`, "miniserver": "miniserver-1 is unhealthy"}[c.service]; !strings.Contains(out, ends) {
			t.Errorf("%s=%s: the end does not say that it is %s:\n%s", c.setting, c.value, c.service, out)
		}
		log := p.compose("logs", "--tail", "100", c.service)
		if !strings.Contains(log, c.says) {
			t.Errorf("%s=%s: the log does not say %q:\n%s", c.setting, c.value, c.says, log[max(0, len(log)-3000):])
		}
		p.Say("%s=%s is named in the log of %s", c.setting, c.value, c.service)
	}
	p.compose("up", "--detach", "--wait")
	p.Say("with the right settings all services are healthy again")
}

// crash kills a container's first process, and waits until everything is healthy again.
func (p *project) crash(c container) {
	p.t.Helper()
	inspect := func(field string) int {
		out, err := p.Engine.Command(context.Background(), "inspect", "--format", "{{"+field+"}}", c.ID).Output()
		kit.Must(p.t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		kit.Must(p.t, err)
		return n
	}
	pid, restarts := inspect(".State.Pid"), inspect(".RestartCount")
	if pid <= 1 {
		p.t.Fatalf("%s has no process", c.Service)
	}
	began := time.Now()
	kit.Must(p.t, syscall.Kill(pid, syscall.SIGKILL))
	kit.Within(p.t, soonWithin, c.Service+" was killed, and everything is healthy again", func() bool {
		return inspect(".RestartCount") > restarts && p.healthy()
	})
	p.Say("%s was killed: all healthy again after %s", c.Service, time.Since(began).Round(100*time.Millisecond))
}
