# make build  the static program, bin/kvol
# make demo   a volume carried up and down, as root
# make test   all tests; as root, or those that mount skip
# make lint   formatting, linters, the rules of the tree
# make fuzz   every fuzz test for FUZZTIME each, and KVOL_STATES nodes made at random
# make bench  the benchmarks
# make release-check  a snapshot of a release in dist/, and its packages tried; as root on Debian
# make docs completions  what is generated: manual pages, docs/reference, deploy/config.yaml, completions

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
FUZZTIME ?= 30s
GOTESTFLAGS ?=

.PHONY: build demo test lint fuzz bench release-check docs completions

build:
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)' -o bin/kvol ./cmd/kvol

demo: build
	scripts/deps.sh demo
	scripts/demo.sh

# The programs that many tests start are built once. test/e2e is one test after the
# other and waits a lot: its parts run beside each other, and beside the rest. What vet
# has to say is lint's.
test: export CGO_ENABLED = $(if $(findstring -race,$(GOTESTFLAGS)),1,0)
test: export KVOL_TEST_PROGRAMS = $(CURDIR)/bin/test
test:
	scripts/deps.sh test
	CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/test/ ./cmd/kvol ./test/cmd/csidriver ./test/cmd/fakelet
	go run ./test/cmd/gotest -count=1 -vet=off -timeout 20m -ldflags='-s -w' $(GOTESTFLAGS) \
		-- -skip '^Test[^A-C]' ./test/e2e -- -skip '^Test[^D-L]' ./test/e2e \
		-- -skip '^Test([^M-S]|S[^e])' ./test/e2e -- -skip '^Test([A-R]|Se)' ./test/e2e \
		-- -p 3 ./test/kill $$(go list ./... | grep -v '/test/e2e$$')

lint:
	scripts/deps.sh lint
	scripts/lint.sh

fuzz:
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

bench:
	go test -run '^$$' -bench . -benchmem ./...

release-check:
	scripts/deps.sh release
	scripts/release.sh --snapshot
	KVOL_DIST=$(CURDIR)/dist go run ./test/cmd/gotest -count=1 -timeout 20m ./test/release

# Tests hold that these change nothing where nothing changed.
docs:
	go test ./cmd/kvol -run '^Test(Manual|Reference|Catalogue)$$' -update

completions:
	go test ./cmd/kvol -run '^TestCompletions$$' -update
