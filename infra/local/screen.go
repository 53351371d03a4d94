package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

// writeEnv writes where everything is, for psql, redis-cli, nats and curl:
// set -a; . .local/env
func (l *Local) writeEnv(s settings.Settings) error {
	var out bytes.Buffer
	for _, line := range [][2]string{
		{"DATABASE_URL", s.DatabaseURL}, {"REDIS_URL", s.RedisURL}, {"NATS_URL", s.NATSURL},
		{"GATEWAY_URL", s.PublicURL}, {"OIDC_ISSUER", s.OIDCIssuer},
	} {
		fmt.Fprintf(&out, "%s=%s\n", line[0], line[1])
	}
	path := filepath.Join(l.Dir, "env")
	// It holds passwords. A temporary file, so that nobody reads half of it.
	if err := os.WriteFile(path+".new", out.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

var screen = template.Must(template.New("screen").Parse(`
MiniServerSystem is ready ({{.Took}}). Ctrl-C stops all of it.

  API       {{.Gateway}}          docs at {{.Gateway}}/docs
  Issuer    {{.Issuer}}
  Postgres, Redis, NATS   see {{.Dir}}/env:  set -a; . {{.Dir}}/env; psql "$DATABASE_URL"

Try it in another terminal:

  # a purchase service gets a token and grants something
  TOKEN=$(curl -s -u purchase-service:purchase-service-secret -d grant_type=client_credentials {{.Issuer}}/token | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
  curl -s {{.Gateway}}/v1/entitlements/grants -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -H 'Idempotency-Key: p_456' -d '{"user_id":"u_123","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_456"}'
  curl -s {{.Gateway}}/v1/users/u_123/entitlements -H "Authorization: Bearer $TOKEN"

  # an operator sees that the player was told, once
  OPS=$(curl -s -u ops:ops-secret -d grant_type=client_credentials {{.Issuer}}/token | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
  curl -s {{.Gateway}}/debug/notification/inbox/u_123 -H "Authorization: Bearer $OPS"

`))

// firstScreen says what runs where and what to try.
func (l *Local) firstScreen(s settings.Settings, took time.Duration) {
	_ = screen.Execute(l.Out, map[string]string{ // a closed terminal is no error
		"Took": took.Round(10 * time.Millisecond).String(), "Gateway": s.PublicURL, "Issuer": s.OIDCIssuer, "Dir": l.Dir,
	})
}
