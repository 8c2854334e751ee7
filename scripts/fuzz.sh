#!/usr/bin/env bash
# Runs every fuzz test of the tree, one after the other.
#
#   FUZZTIME  how long each runs, as "go test -fuzztime" takes it (30s)
#   FUZZ      a pattern: only those whose name matches it
set -euo pipefail
cd "$(dirname "$0")/.."

dirs=$(go list -f '{{.Dir}}' ./...)
count=0
while read -r dir; do
	while read -r name; do
		echo "fuzz: $name in ${dir#"$PWD"/} for ${FUZZTIME:-30s}"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" "$dir" </dev/null
		count=$((count + 1))
	done < <(grep -hoP '^func \KFuzz\w+(?=\()' "$dir"/*_test.go 2>/dev/null | grep -E -e "${FUZZ:-.}")
done <<<"$dirs"
echo "fuzz: $count ran"
