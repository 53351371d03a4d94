#!/usr/bin/env bash
# Makes a kind cluster with Knative Serving, Eventing, Kourier and the JetStream
# channel, all of pinned versions. Can be run again.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=need.sh
. ./need.sh
need_tools

# Those that the checks compile against: knative-v1.22.0 of serving is the module's
# v0.49.0, knative-v1.20.0 of eventing v0.47.0.
serving=${KNATIVE_SERVING:-knative-v1.22.0}
kourier=${KNATIVE_KOURIER:-knative-v1.22.0}
eventing=${KNATIVE_EVENTING:-knative-v1.20.0}
natss=${KNATIVE_NATSS:-knative-v1.20.0} # or none: consumers are then woken by functions and ticks only
# Where the releases are, which may be a folder.
github=${KNATIVE_RELEASES:-https://github.com}

kind get clusters | grep -qx "$cluster" ||
  kind create cluster --config "${KIND_CONFIG:-kind.yaml}" ${KIND_NODE_IMAGE:+--image "$KIND_NODE_IMAGE"} --wait 3m

k apply -f "$github/knative/serving/releases/download/$serving/serving-crds.yaml"
k wait --for=condition=Established --timeout=1m crd -l knative.dev/crd-install=true
k apply -f "$github/knative/serving/releases/download/$serving/serving-core.yaml"
k apply -f "$github/knative-extensions/net-kourier/releases/download/$kourier/kourier.yaml"
k apply -f "$github/knative/eventing/releases/download/$eventing/eventing-crds.yaml"
k apply -f "$github/knative/eventing/releases/download/$eventing/eventing-core.yaml"
[ "$natss" = none ] || k apply -f "$github/knative-extensions/eventing-natss/releases/download/$natss/eventing-jsm.yaml"

# Knative's webhooks have to allow the changes that follow. They can be reached a moment
# after they are ready.
k -n knative-serving rollout status --timeout=5m deployment/webhook
configure() { # CONFIGMAP PATCH
  for _ in $(seq 60); do
    k -n knative-serving patch configmap "$1" --type merge -p "$2" && return
    sleep 1
  done
  return 1
}

# Services are at NAME.NAMESPACE.localhost, which is this machine to browsers and curl.
configure config-network '{"data":{"ingress-class":"kourier.ingress.networking.knative.dev"}}'
# Kourier passes on whatever X-Forwarded-For clients send unless it is told to add theirs.
configure config-kourier '{"data":{"use-remote-address":"true"}}'
configure config-domain '{"data":{"localhost":""}}'
# ko puts images into the node; there is no registry to ask for their digests.
configure config-deployment '{"data":{"registries-skipping-tag-resolving":"kind.local,ko.local,dev.local"}}'
k -n kourier-system patch service kourier --type merge -p '{"spec":{"type":"NodePort","ports":[{"name":"http2","port":80,"targetPort":8080,"nodePort":31080},{"name":"https","port":443,"targetPort":8443}]}}'
k -n knative-eventing create configmap config-nats --dry-run=client -o yaml \
  --from-literal=eventing-nats='url: nats://operator:development-only@nats.miniserver.svc.cluster.local:4222' | k apply -f -

# The issuer has one name for browsers and for the gateway.
rewrite='rewrite name keycloak.localhost keycloak.miniserver.svc.cluster.local'
corefile=$(k -n kube-system get configmap coredns -o 'jsonpath={.data.Corefile}')
if ! grep -qF "$rewrite" <<<"$corefile"; then
  patched=${corefile/ready/"ready
    $rewrite"}
  k -n kube-system create configmap coredns --from-literal=Corefile="$patched" --dry-run=client -o yaml | k apply -f -
  k -n kube-system rollout restart deployment/coredns
fi

for namespace in knative-serving knative-eventing kourier-system; do
  # The channel's dispatcher waits for NATS, which kind-deploy brings.
  k -n "$namespace" get deployments -o name | grep -v jetstream-ch-dispatcher | while read -r deployment; do
    k -n "$namespace" rollout status --timeout=5m "$deployment"
  done
done
echo "the cluster is there; make kind-deploy"
