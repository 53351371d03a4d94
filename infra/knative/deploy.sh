#!/usr/bin/env bash
# Builds the image with ko, puts it into the kind cluster, migrates, and deploys
# everything. Can be run again after a change.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=need.sh
. infra/knative/need.sh
need_tools
export KO_DOCKER_REPO=kind.local KIND_CLUSTER_NAME=$cluster
# The node is of this machine's architecture; ko would take amd64.
export GOOS=linux GOARCH="${GOARCH:-$(go env GOHOSTARCH)}"

manifests=$(mktemp)
trap 'rm -f "$manifests"' EXIT
kubectl kustomize "${KIND_OVERLAY:-infra/knative/overlays/kind}" | ko resolve --filename - >"$manifests"

# migrated waits for the Job, says why its tries failed, and gives up when it does.
migrated() {
  local state failed said=0
  for _ in $(seq 900); do # seconds, as the Job has
    state=$(k -n miniserver get job migrate -o 'jsonpath={.status.conditions[?(@.status=="True")].type}') || state=
    failed=$(k -n miniserver get job migrate -o 'jsonpath={.status.failed}') || failed=
    [[ $state != *Complete* ]] || return 0
    if [ "${failed:-0}" -gt "$said" ]; then
      said=$failed
      echo "tries of migrate that failed: $said" >&2
      k -n miniserver logs --selector job-name=migrate --tail=3 --prefix >&2 || true
    fi
    [[ $state != *Failed* ]] || break
    sleep 1
  done
  echo "nothing is migrated; the version before goes on serving. Mend it and deploy again" >&2
  return 1
}

# A Job cannot be changed, and this version's must run. Functions that start before
# it has ended answer that they are not ready.
k -n miniserver delete job migrate --ignore-not-found
k apply -f "$manifests"
k -n miniserver rollout status --timeout=5m statefulset/postgres statefulset/redis statefulset/nats
k -n miniserver rollout status --timeout=5m deployment/pgbouncer
migrated
k -n miniserver rollout status --timeout=10m deployment/keycloak
k -n miniserver wait --for=condition=Ready --timeout=10m services.serving.knative.dev --all
k -n miniserver wait --for=condition=Ready --timeout=5m pingsources.sources.knative.dev --all
if grep -q '^kind: Subscription$' "$manifests"; then
  k -n miniserver wait --for=condition=Ready --timeout=5m subscriptions.messaging.knative.dev --all
fi

url=http://gateway.miniserver.localhost:8080
curl -sSf --retry 30 --retry-delay 2 --retry-all-errors "$url/health/readiness"
echo "MiniServerSystem is ready: $url (alice, password alice)"
