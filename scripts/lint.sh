#!/usr/bin/env bash
# Checks what a compiler does not: formatting, vet, the linters of .golangci.yml,
# the tests of the tree itself, and the scripts. It goes on after a failure, and
# fails when anything did.
set -euo pipefail
cd "$(dirname "$0")/.."

golangci=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
failed=()

# check NAME COMMAND... runs a command, and shows what it printed if it failed.
check() {
	local name=$1 out
	shift
	echo "lint: $name"
	if ! out=$("$@" 2>&1); then
		printf '%s\n' "$out"
		failed+=("$name")
	fi
}

# formatted fails when gofmt would change a file, and names it.
formatted() {
	local out
	out=$(gofmt -s -l cmd internal test) && printf '%s' "$out" && [[ -z $out ]]
}

mapfile -t scripts < <(find docs deploy scripts .ci test -type f \( -name '*.sh' -o -path '.ci/run' \) | sort)

check gofmt formatted
check vet go vet ./...
check modules go mod tidy -diff
check golangci-lint go run "$golangci" run --show-stats=false ./...
check tree go test -count=1 ./test/repo
if command -v shellcheck >/dev/null; then
	check shellcheck shellcheck "${scripts[@]}"
fi

if ((${#failed[@]} > 0)); then
	echo "lint: failed: ${failed[*]}" >&2
	exit 1
fi
