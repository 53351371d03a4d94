# Sourced by the scripts beside it: what must be installed, and how it is.
# shellcheck shell=bash

# The cluster that kind makes of kind.yaml; nothing here talks to any other.
cluster=miniserver
k() { kubectl --context "kind-$cluster" "$@"; }

# need COMMAND HOW-TO-INSTALL
missing=0
need() {
  command -v "$1" >/dev/null && return
  echo "$1 is not there; $2" >&2
  missing=1
}

need_tools() {
  need docker "install Docker or another engine that kind can use: https://docs.docker.com/engine/install"
  need kind "go install sigs.k8s.io/kind@v0.30.0"
  need kubectl "install it: https://kubernetes.io/docs/tasks/tools"
  need ko "go install github.com/google/ko@v0.18.0"
  [ "$missing" = 0 ] || exit 1
  docker info >/dev/null 2>&1 || { echo "docker is there and its engine does not answer; start it" >&2; exit 1; }
}
