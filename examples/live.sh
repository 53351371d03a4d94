#!/usr/bin/env bash
# bob follows his notifications live, as server-sent events, while a purchase service
# grants him something.
set -euo pipefail
. "$(dirname "$0")/client.sh"

say "bob signs in and opens the stream"
sign_in bob
bob=$(call GET /v1/me -b "$scratch/bob" | field user_id)
curl -sN --max-time 30 -b "$scratch/bob" "$GATEWAY_URL/v1/me/notifications/stream" >"$scratch/stream" &
stream=$!
trap 'kill $stream 2>/dev/null; rm -rf "$scratch"' EXIT
eventually 'retry:' cat "$scratch/stream"

say "the purchase service grants something to $bob"
item=item_$RANDOM
expect '"status":"ACTIVE"' "$(call POST /v1/entitlements/grants -H "Authorization: Bearer $(token purchase-service)" -H "Idempotency-Key: $item" \
  -d '{"user_id":"'"$bob"'","stock_keeping_unit":"'"$item"'","reason":"purchase","purchase_id":"'"$item"'"}')"

say "the notification arrives on the stream"
eventually "$item" cat "$scratch/stream"
