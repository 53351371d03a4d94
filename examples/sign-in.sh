#!/usr/bin/env bash
# Signs alice in as a browser does, and acts for her with the session's cookie.
set -euo pipefail
. "$(dirname "$0")/client.sh"

say "alice signs in at the issuer and comes back with a session cookie"
sign_in alice
grep -o 'miniserver_session' "$scratch/alice" || fail "no session cookie"

me() { call "$1" "$2" -b "$scratch/alice" "${@:3}"; }

say "who she is"
expect '"user_id":"u_' "$(me GET /v1/me)"

say "her account, entitlements and matchmaking in one answer"
expect '"entitlements":' "$(me GET /v1/me/overview)"

say "a write with a cookie needs the header X-CSRF: 1"
expect 403 "$(status POST /v1/me -b "$scratch/alice")"
expect '"user_id":"u_' "$(me POST /v1/me -H 'X-CSRF: 1')"

say "signing out ends the session at once"
expect 204 "$(status POST /logout -b "$scratch/alice" -H 'X-CSRF: 1')"
expect 401 "$(status GET /v1/me -b "$scratch/alice")"
