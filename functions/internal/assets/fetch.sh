#!/bin/sh
# Fetches what a folder's vendor.txt lists from the npm packages, and checks the sums; where
# there is - instead of one, it writes the one that it found.
set -eu
cd "$1"
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
fail() { echo "$1" >&2; exit 1; }

grep '^#' vendor.txt >"$fetched/vendor.txt"
grep -v '^#' vendor.txt | while read -r package version licence integrity path sha256; do
  library=$(basename "$package")
  from=$fetched/$library-$version
  if [ ! -d "$from" ]; then
    mkdir -p "$from" "$library"
    npm pack --silent --pack-destination "$from" "$package@$version" >/dev/null
    mv "$from"/*.tgz "$from.tgz"
    tar -xzf "$from.tgz" -C "$from"
    for text in "$from"/package/LICENSE*; do
      [ ! -e "$text" ] || cp "$text" "$library/"
    done
  fi
  found=sha512-$(openssl dgst -sha512 -binary "$from.tgz" | base64 -w 0)
  [ "$integrity" = - ] || [ "$integrity" = "$found" ] || fail "$package@$version is $found, not $integrity"
  file=$from/package/$path
  sum=$(sha256sum "$file" | cut -d ' ' -f 1)
  [ "$sha256" = - ] || [ "$sha256" = "$sum" ] || fail "$package@$version: $path is $sum, not $sha256"
  gzip -9nc "$file" >"$library/$(basename "$path").gz"
  echo "$package $version $licence $found $path $sum" >>"$fetched/vendor.txt"
done
cp "$fetched/vendor.txt" vendor.txt
