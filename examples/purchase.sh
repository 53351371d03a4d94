#!/usr/bin/env bash
# A purchase service grants an item; the same request again changes nothing; an
# operator sees that the player was notified, once.
set -euo pipefail
. "$(dirname "$0")/client.sh"

user=u_$RANDOM$RANDOM
purchase=p_$RANDOM$RANDOM

say "the purchase service gets a token from the issuer"
writer=(-H "Authorization: Bearer $(token purchase-service)")
operator=(-H "Authorization: Bearer $(token ops)")

grant() {
  call POST /v1/entitlements/grants "${writer[@]}" -H "Idempotency-Key: $purchase" \
    -d '{"user_id":"'"$user"'","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"'"$purchase"'"}'
}

say "it grants item1 to $user"
first=$(grant)
expect '"status":"ACTIVE","version":1' "$first"

say "the same request again: the same bytes, marked as a replay"
again=$(grant)
expect "$first" "$again"
grep -i '^Idempotent-Replayed: true' "$scratch/headers" || fail "the second answer is no replay"

say "what the player owns"
owned=$(call GET "/v1/users/$user/entitlements" "${writer[@]}")
expect '"stock_keeping_unit":"item1","status":"ACTIVE"' "$owned"

say "an operator reads the player's inbox: one notification, SENT"
inbox=$(eventually '"status":"SENT"' call GET "/debug/notification/inbox/$user" "${operator[@]}")
expect '"event_type":"EntitlementGranted"' "$inbox"
[ "$(grep -o '"notification_id"' <<<"$inbox" | wc -l)" = 1 ] || fail "more than one notification"

say "without a token nobody grants anything"
expect 401 "$(status POST /v1/entitlements/grants)"
