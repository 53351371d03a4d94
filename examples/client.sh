# The functions that the examples share; each example sources this file.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Where the system runs: variables of the caller, or what make run wrote.
if [ -z "${GATEWAY_URL:-}" ] || [ -z "${OIDC_ISSUER:-}" ]; then
  [ -f "$root/.local/env" ] || { echo "Start the system first: make run" >&2; exit 1; }
  GATEWAY_URL=$(. "$root/.local/env" && echo "$GATEWAY_URL")
  OIDC_ISSUER=$(. "$root/.local/env" && echo "$OIDC_ISSUER")
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

say() { printf '\n# %s\n' "$*" >&2; }

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# token CLIENT prints an access token of one of the services that make run knows:
# purchase-service (it writes entitlements) and ops (an operator).
token() {
  local endpoint
  endpoint=$(curl -sf "$OIDC_ISSUER/.well-known/openid-configuration" | field token_endpoint)
  curl -sf -u "$1:$1-secret" -d grant_type=client_credentials "$endpoint" | field access_token
}

# call METHOD PATH [curl's options] prints the answer's body, and fails unless the
# status is 2xx. $scratch/headers then has the answer's headers.
call() {
  local method=$1 path=$2 status
  shift 2
  status=$(curl -s -X "$method" -D "$scratch/headers" -o "$scratch/body" -w '%{http_code}' "$GATEWAY_URL$path" \
    -H 'Content-Type: application/json' "$@") || fail "$method $path: no answer"
  printf '%s %s -> %s\n' "$method" "$path" "$status" >&2
  [[ $status == 2?? ]] || { cat "$scratch/body" >&2; fail "$method $path: status $status"; }
  cat "$scratch/body"
}

# status METHOD PATH [curl's options] prints the status alone.
status() {
  local method=$1 path=$2
  shift 2
  curl -s -X "$method" -o /dev/null -w '%{http_code}' "$GATEWAY_URL$path" -H 'Content-Type: application/json' "$@"
}

# field NAME prints the first member of that name in the JSON of standard input.
field() { sed -n 's/.*"'"$1"'": *"\{0,1\}\([^",}]*\).*/\1/p' | head -n 1; }

# expect TEXT IN prints IN, and fails unless TEXT is in it.
expect() {
  printf '%s\n' "$2"
  [[ $2 == *"$1"* ]] || fail "expected $1"
}

# eventually TEXT COMMAND... repeats a command until TEXT is in what it prints, for
# ten seconds at most.
eventually() {
  local text=$1 found='' end=$((SECONDS + 10))
  shift
  while [ $SECONDS -lt $end ]; do
    found=$("$@" 2>/dev/null) && [[ $found == *"$text"* ]] && { printf '%s\n' "$found"; return; }
    sleep 0.1
  done
  printf '%s\n' "$found" >&2
  fail "$text did not come"
}

# sign_in USER signs in at the development issuer, as a browser does, and keeps the
# session's cookie in $scratch/USER. call -b "$scratch/USER" then acts as the user.
sign_in() {
  local jar=$scratch/$1 id
  curl -sfL -c "$jar" -b "$jar" "$GATEWAY_URL/login?return_to=/" -o "$scratch/page" || fail "no sign-in page"
  id=$(sed -n 's/.*name="id" value="\([^"]*\)".*/\1/p' "$scratch/page")
  curl -sfL -c "$jar" -b "$jar" -o /dev/null "$OIDC_ISSUER/login" \
    --data-urlencode "id=$id" -d "username=$1" -d "password=$1" || fail "$1 could not sign in"
}
