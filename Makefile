# `make help` lists the targets.

GO ?= go
# Packages tested at a time: most of them wait most of the time.
P ?= 3
# Those whose tests measure time come after the others, one by one: they want the
# machine to themselves.
MEASURING := /(internal/test/e2e|queue|throttle)$$
# Those whose tests run programs, a browser or long models, for minutes.
SLOW := /(cmd/.*|internal/test/(browsertest|e2e|limitplots))$$
# More flags for `go test`, as in: make test TESTFLAGS='-run Gate -v'
TESTFLAGS ?=
# What is linted and tested.
PKGS ?= ./...

# Modules beside the main one: their dependencies stay out of its go.sum. They
# read files outside of themselves, of which Go's test cache does not know.
MODULES := internal/test/composetest internal/test/openapitest internal/test/stripetest bench/limiters bench/queue
# A program under the race detector waits a second at its end for late reports,
# and there are as many as packages, twice.
export GORACE ?= atexit_sleep_ms=50
# Where scripts/install-test-deps.sh puts what it unpacks.
export PATH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headgate-test/bin:$(PATH)
TOOL := $(GO) tool -modfile=lint/go.mod
# lint has vetted the packages.
TEST := $(GO) test -race -vet=off

.DEFAULT_GOAL := build

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/worker and bin/enqueue
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: check
check: deps lint ## Run between two edits: lint, and the tests that take no seconds
	$(GO) list $(PKGS) | grep -vE '$(SLOW)' | xargs -r $(GO) test -vet=off -short -timeout 5m $(TESTFLAGS)

.PHONY: test
test: deps lint ## What CI runs: install what tests need, lint, test
	@$(MAKE) --no-print-directory -j 2 test-packages test-modules
	$(GO) list $(PKGS) | grep -E '$(MEASURING)' | xargs -r $(TEST) -timeout 20m -p 1 $(TESTFLAGS)
	@$(MAKE) --no-print-directory bench

# The browser is half of the time of test-packages, and leaves room for the modules.
.PHONY: test-packages test-modules
test-packages:
	$(GO) list $(PKGS) | grep -vE '$(MEASURING)' | xargs -r $(TEST) -timeout 10m -p $(P) $(TESTFLAGS)

test-modules:
	@for module in $(MODULES); do \
		(set -x; cd $$module; $(GO) vet -race ./... && $(GO) fix -race -diff ./... && $(TEST) -timeout 10m -count 1 ./...) || exit 1; \
	done

.PHONY: test-long
test-long: ## As test, with the long models at their full length: run it after a change of the core
	HEADGATE_TEST_LONG=1 $(MAKE) test

.PHONY: bench
bench: ## Run each benchmark once, to see that it runs
	$(GO) list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' $(PKGS) | \
		xargs grep -l '^func Benchmark' | xargs -n 1 dirname | sort -u | \
		xargs -r $(TEST) -timeout 10m -p 1 -short -run '^$$' -bench . -benchtime 1x

.PHONY: lint
lint: ## gofmt, go vet, go fix, staticcheck, import rules
	@unformatted=$$(find . -name node_modules -prune -o -name '*.go' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then \
		printf 'not formatted, run gofmt -w:\n%s\n' "$$unformatted"; exit 1; \
	fi
	$(GO) vet $(PKGS)
	$(GO) fix -diff $(PKGS)
	$(TOOL) staticcheck $(PKGS)
	$(TOOL) depguard $(PKGS)

.PHONY: deps
deps: ## Install what the tests need, where it is missing
	scripts/install-test-deps.sh

.PHONY: images
images: ## Take the pictures in docs/img again
	UPDATE_IMAGES=1 $(GO) test -count 1 -timeout 10m -run TestDev ./internal/test/browsertest

.PHONY: clean
clean: ## Remove what build made
	rm -rf bin

# The packages whose tests count, as in: make cover COVER=./queue
COVER ?=

.PHONY: cover
cover: ## Print which lines of the Lua scripts the tests run
	$(GO) run ./internal/test/cover $(COVER)

# Which mutants, as in: make mutants MUTANTS='-j 2 dispatch.lua'
MUTANTS ?=

.PHONY: mutants
mutants: ## Break one promise at a time, to see that a test notices
	$(GO) run ./internal/test/mutants $(MUTANTS)
