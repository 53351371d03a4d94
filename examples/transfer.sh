#!/usr/bin/env bash
# An operator opens two accounts, and money moves from one to the other: once,
# however often the request is sent.
set -euo pipefail
. "$(dirname "$0")/client.sh"

payer=(-H "Authorization: Bearer $(token purchase-service)")
operator=(-H "Authorization: Bearer $(token ops)")

open() { # OWNER BALANCE
  call POST /v1/accounts "${operator[@]}" -H "Idempotency-Key: open-$RANDOM$RANDOM" \
    -d '{"ownerUserId":"'"$1"'","currency":"EUR","initialBalance":'"$2"'}'
}

say "an operator opens an account with 100 EUR for the payer, and an empty one"
from=$(open "$(call POST /v1/me "${payer[@]}" | field user_id)" 100 | field accountId)
to=$(open "$(call POST /v1/me "${operator[@]}" | field user_id)" 0 | field accountId)

say "the payer gets a key and sends 30.0001 EUR with it, twice"
key=$(call POST /v1/idempotency-keys "${payer[@]}" | field idempotencyKey)
send() {
  call POST /v1/transfers "${payer[@]}" -H "Idempotency-Key: $key" \
    -d '{"fromAccountId":'"$from"',"toAccountId":'"$to"',"amount":30.0001}'
}
first=$(send)
expect '"status":"SUCCEEDED"' "$first"
expect "$first" "$(send)"

say "the money moved once, and not a ten-thousandth is missing"
expect '"balance":69.9999' "$(call GET "/v1/accounts/$from" "${payer[@]}")"
expect '"balance":30.0001' "$(call GET "/v1/accounts/$to" "${operator[@]}")"

say "the ledger has the other side of it a moment later"
eventually '"side":"CREDIT","amount":30.0001' call GET "/v1/accounts/$to/ledger" "${operator[@]}"

say "more than there is cannot be sent: the transfer ends FAILED, and the balance stays"
key=$(call POST /v1/idempotency-keys "${payer[@]}" | field idempotencyKey)
expect 'INSUFFICIENT_BALANCE' "$(call POST /v1/transfers "${payer[@]}" -H "Idempotency-Key: $key" \
  -d '{"fromAccountId":'"$from"',"toAccountId":'"$to"',"amount":1000}')"

say "an operator takes the transfer back, and the balances agree with the ledger"
key=$(call POST /v1/idempotency-keys "${operator[@]}" | field idempotencyKey)
expect '"status":"SUCCEEDED"' "$(call POST "/v1/transfers/$(field transferId <<<"$first")/reversals" "${operator[@]}" -H "Idempotency-Key: $key")"
expect '"balance":100' "$(call GET "/v1/accounts/$from" "${payer[@]}")"
expect '"balanced":true' "$(eventually '"transfersWithoutEntries":0' call GET /v1/reconciliation "${operator[@]}")"
