#!/usr/bin/env bash
# Runs every fuzz test of the tree, one after the other, and then kvol on nodes made
# at random (test/states).
#
#   FUZZTIME     how long each runs, as "go test -fuzztime" takes it (30s)
#   FUZZ         a pattern: only those whose name matches it; the nodes are TestStates
#   KVOL_STATES  how many nodes (1000)
#   KVOL_SEED    the seed of the first; a new one each time when it is not given
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
if grep -qE -e "${FUZZ:-.}" <<<TestStates; then
	export KVOL_STATES=${KVOL_STATES:-1000} KVOL_SEED=${KVOL_SEED:-$(date +%s%N)}
	echo "fuzz: $KVOL_STATES nodes from seed $KVOL_SEED"
	go test -count=1 -timeout 0 -v -run '^TestStates$' ./test/states </dev/null
	count=$((count + 1))
fi
echo "fuzz: $count ran"
