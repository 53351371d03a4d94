#!/usr/bin/env bash
# Two callers join a queue, are matched with each other, and are given the same game
# server. (Here they are two services; on the start page they are two players.)
set -euo pipefail
. "$(dirname "$0")/client.sh"

one=(-H "Authorization: Bearer $(token purchase-service)")
two=(-H "Authorization: Bearer $(token ops)")

join() { # TOKEN...
  call POST /v1/matchmaking/queues/casual/tickets "$@" \
    -d '{"party_size":1,"attributes":{"region":"eu"},"idempotency_key":"'$RANDOM$RANDOM'"}'
}

say "both join the queue casual"
first=$(join "${one[@]}")
expect '"ticket_id":"casual_' "$first"
second=$(join "${two[@]}")
expect '"ticket_id":"casual_' "$second"

say "both tickets become MATCHED, with the address of a game server"
a=$(eventually '"session":' call GET "/v1/matchmaking/tickets/$(field ticket_id <<<"$first")" "${one[@]}")
b=$(eventually '"session":' call GET "/v1/matchmaking/tickets/$(field ticket_id <<<"$second")" "${two[@]}")
expect '"status":"MATCHED"' "$a"
expect '"status":"MATCHED"' "$b"
expect "$(field match_id <<<"$a")" "$b"
