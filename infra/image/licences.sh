#!/usr/bin/env bash
# Prints the licences of all modules in the programs of a release, which go with them.
set -euo pipefail
cd "$(dirname "$0")/../.."
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./infra/miniserver ./infra/lambda | sort -u |
	while read -r module version dir; do
		for file in "$dir"/LICEN[CS]E* "$dir"/COPYING* "$dir"/NOTICE*; do
			[ ! -f "$file" ] || { printf '\n== %s %s: %s\n\n' "$module" "$version" "${file##*/}" && cat "$file"; }
		done
	done
