#!/usr/bin/env bash
# A purchase service that sends CloudEvents instead of requests. The refund arrives
# before its purchase, and the item still ends REVOKED.
set -euo pipefail
. "$(dirname "$0")/client.sh"

user=u_$RANDOM$RANDOM
writer=(-H "Authorization: Bearer $(token purchase-service)")

event() { # ID TYPE
  call POST /v1/events "${writer[@]}" -H 'ce-specversion: 1.0' -H 'ce-source: /shop' -H "ce-id: $1-$user" -H "ce-type: $2" \
    -d '{"user_id":"'"$user"'","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_1"}'
}

say "the refund of p_1 arrives first"
expect '"status":"REVOKED","version":1' "$(event refund purchase.refunded)"

say "its purchase arrives late and gives nothing"
late=$(event purchase purchase.completed)
expect '"status":"REVOKED","version":2' "$late"

say "an event that arrives twice is a replay"
expect "$late" "$(event purchase purchase.completed)"
grep -i '^Idempotent-Replayed: true' "$scratch/headers" || fail "the event was handled twice"
