package main

import (
	"text/template"
	"time"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

var screen = template.Must(template.New("screen").Parse(`
MiniServerSystem is ready ({{.Took}}). Ctrl-C stops all of it.

  Open      {{.Gateway}}          sign in as alice, bob or carol (password = name), buy, find an opponent, send money, watch
  Console   {{.Gateway}}/console  olga operates, vera looks
  API       {{.Gateway}}/docs
  Issuer    {{.Issuer}}
  Metrics   http://{{.Metrics}}/metrics
  Postgres, Redis, NATS   see {{.Dir}}/env:  (set -a; . {{.Dir}}/env; psql "$DATABASE_URL")

Try it in another terminal:

  # a purchase service gets a token and grants something
  TOKEN=$(curl -s -u purchase-service:purchase-service-secret -d grant_type=client_credentials {{.Issuer}}/token | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
  curl -s {{.Gateway}}/v1/entitlements/grants -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -H 'Idempotency-Key: p_456' -d '{"user_id":"u_123","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_456"}'
  curl -s {{.Gateway}}/v1/users/u_123/entitlements -H "Authorization: Bearer $TOKEN"

  # two callers join a queue and find each other; GET /v1/matchmaking/tickets shows the match
  OPS=$(curl -s -u ops:ops-secret -d grant_type=client_credentials {{.Issuer}}/token | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
  for CALLER in "$TOKEN" "$OPS"; do
    curl -s {{.Gateway}}/v1/matchmaking/queues/casual/tickets -H "Authorization: Bearer $CALLER" -H 'Content-Type: application/json' \
      -d '{"party_size":1,"attributes":{"region":"eu"},"idempotency_key":"'$RANDOM'"}'
  done
  curl -s {{.Gateway}}/v1/matchmaking/tickets -H "Authorization: Bearer $OPS"

  # a player's own view: POST /v1/me, GET /v1/me/overview and GET /v1/me/notifications/stream with their token,
  # or with the cookie of a browser that signed in

  # an operator sees that the player was told, once
  curl -s {{.Gateway}}/debug/notification/inbox/u_123 -H "Authorization: Bearer $OPS"

`))

// firstScreen prints what runs where and what to try.
func (l *Local) firstScreen(s settings.Settings, took time.Duration) {
	_ = screen.Execute(l.Out, map[string]string{ // a closed terminal is no error
		"Took": took.Round(10 * time.Millisecond).String(), "Gateway": s.PublicURL, "Issuer": s.OIDCIssuer, "Dir": l.Dir,
		"Metrics": s.MetricsAddress,
	})
}
