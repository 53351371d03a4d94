#!/usr/bin/env bash
# Builds the image of infra/miniserver with ko and pushes it, with its SBOM, as
# KO_DOCKER_REPO. Prints its name with its digest, which is what to deploy. .ko.yaml
# has the flags and the base.
#   VERSION    the tag, and the version on the label; by default what git describe says
#   PLATFORMS  by default linux/amd64,linux/arm64
#   SBOM_DIR   where the SBOM is written, too
set -euo pipefail
: "${KO_DOCKER_REPO:?set it to where the image goes, such as registry.example.com/miniserver}"
cd "$(dirname "$0")/../.."
ko=$PWD/.local/bin/tools/ko
(cd infra/image && go build -o "$ko" github.com/google/ko)

version=${VERSION:-$(git describe --tags --always --dirty)}
label=org.opencontainers.image
# No time of the build, here or elsewhere: the same commit gives the same digest.
exec "$ko" build --bare --tags "$version" \
	--platform "${PLATFORMS:-linux/amd64,linux/arm64}" \
	--image-user 65532:65532 ${SBOM_DIR:+--sbom-dir "$SBOM_DIR"} \
	--image-label "$label.title=miniserver" \
	--image-label "$label.version=$version" \
	--image-label "$label.revision=$(git rev-parse HEAD)" \
	--image-label "$label.source=https://github.com/miniserversystem/miniserver" \
	--image-label "$label.licenses=Apache-2.0" \
	./infra/miniserver
