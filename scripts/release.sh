#!/usr/bin/env bash
# Makes in dist/ what goreleaser.yaml says. Once the modules are in Go's module
# cache it needs no network.
#
#   scripts/release.sh               the release of the tag that is checked out, as a draft on GitHub
#   scripts/release.sh --snapshot    of the tree as it is; nothing is published
set -euo pipefail
cd "$(dirname "$0")/.."

# The newest that can be built: v2.17.0 needs a module that no proxy gives
# (go.digitalxero.dev/go-msix), later ones also a newer Go.
goreleaser=github.com/goreleaser/goreleaser/v2@v2.16.0

# The cache is asked first: "go run" looks for a newer version even of what it has.
GOPROXY="file://$(go env GOMODCACHE)/cache/download|$(go env GOPROXY)"
export GOPROXY

# Of a repository without a remote goreleaser takes nothing: no commit, and no date.
if ! git ls-remote --get-url >/dev/null 2>&1; then
	export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/kvol/kvol
fi
go run "$goreleaser" release --clean "$@"
