package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// ownLine marks, in the env file, the variables that name private servers.
const ownLine = "# private, started by make run: "

func (l *Local) envPath() string { return filepath.Join(l.Dir, "env") }

// writeEnv writes the addresses of everything, with all rights, for psql, redis-cli, nats
// and curl: set -a; . .local/env
func (l *Local) writeEnv(s settings.Settings) error {
	var out bytes.Buffer
	fmt.Fprintln(&out, ownLine+strings.Join(l.own, " "))
	lines := [][2]string{
		{"DATABASE_URL", s.DatabaseURL},
		{"REDIS_URL", cmp.Or(l.people["REDIS_URL"], s.RedisURL)},
		{"NATS_URL", cmp.Or(l.people["NATS_URL"], s.NATSURL)},
		{"GATEWAY_URL", s.PublicURL},
		{"OIDC_ISSUER", s.OIDCIssuer},
		// Not METRICS_ADDRESS: a function that is started beside these has its own.
		{"METRICS_URL", "http://" + s.MetricsAddress + "/metrics"},
	}
	if slices.Contains(l.own, "OIDC_ISSUER") { // for miniserver ops
		lines = append(lines, [2]string{"OPS_CLIENT_ID", issuer.OpsClientID}, [2]string{"OPS_CLIENT_SECRET", issuer.OpsClientSecret})
	}
	if s.RabbitMQURL != "" {
		lines = append(lines, [2]string{"RABBITMQ_URL", s.RabbitMQURL})
	}
	for _, line := range lines {
		fmt.Fprintf(&out, "%s=%s\n", line[0], quoted(line[1]))
	}
	// It holds passwords. It is renamed into place, so that no reader sees half of it.
	if err := os.WriteFile(l.envPath()+".new", out.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(l.envPath()+".new", l.envPath())
}

// forgetOwn unsets the variables that a shell got from the env file of an earlier run:
// they name private servers, which this run starts itself.
func (l *Local) forgetOwn() error {
	text, err := os.ReadFile(l.envPath())
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var own []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if names, ok := strings.CutPrefix(line, ownLine); ok {
			own = strings.Fields(names)
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		if slices.Contains(own, name) && quoted(os.Getenv(name)) == value {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// quoted is value as one word of a shell.
func quoted(value string) string { return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'" }
