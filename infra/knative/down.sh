#!/usr/bin/env bash
# Removes the kind cluster and all that is in it.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=need.sh
. ./need.sh
need kind "go install sigs.k8s.io/kind@v0.30.0"
[ "$missing" = 0 ] || exit 1
kind delete cluster --name "$cluster"
