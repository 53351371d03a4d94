#!/usr/bin/env bash
# Makes a release: pushes the image as KO_DOCKER_REPO, signs it and its SBOM with cosign, and
# writes the rest of a release, with checksums, into OUT. Prints the image's name with its
# digest.
#   VERSION     such as 1.2.3
#   OUT         by default .local/release; it is emptied first
#   COSIGN_KEY  a private key file of cosign's, with COSIGN_PASSWORD, whose signatures go into no
#               log; without it, cosign signs as the workflow or person that runs this, in
#               Sigstore's public log
#   PLATFORMS   as in push.sh
set -euo pipefail
: "${VERSION:?set it to what is released, such as 1.2.3}"
cd "$(dirname "$0")/../.."
out=${OUT:-.local/release}
rm -rf "$out" && mkdir -p "$out"
cosign=.local/bin/tools/cosign
make --silent "$cosign" >&2

image=$(SBOM_DIR=$out infra/image/push.sh)
how=()
[ -z "${COSIGN_KEY:-}" ] || how=(--key "$COSIGN_KEY" --use-signing-config=false --tlog-upload=false)
"$cosign" sign --yes --recursive "${how[@]}" "$image" >&2
for sbom in "$out"/*.spdx.json; do # of the image for each platform, and of their index
	"$cosign" attest --yes "${how[@]}" --type spdxjson --predicate "$sbom" "$image" >&2
done

# What users of Knative apply: the manifests of this commit, with this image.
knative=$out/miniserver-$VERSION-knative
mkdir -p "$knative" && git archive HEAD infra/knative | tar -x -C "$knative"
sed -i "s|newName: .*|newName: $KO_DOCKER_REPO|; s|digest: .*|digest: ${image#*@}|" "$knative/infra/knative/overlays/production/kustomization.yaml"
tar -C "$out" -czf "$knative.tar.gz" "${knative##*/}" && rm -r "$knative"

# What AWS Lambda runs.
for arch in arm64 amd64; do
	make --silent lambda LAMBDA_ARCH="$arch" >&2
	tar -C .local/lambda -czf "$out/miniserver-$VERSION-lambda-$arch.tar.gz" bootstrap
done
cp infra/lambda/template.yaml "$out/miniserver-$VERSION-lambda.yaml"
infra/image/licences.sh >"$out/miniserver-$VERSION-licences.txt"
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "$image"
