# `make help` lists the targets.

GO ?= go
# Packages tested at a time.
P ?= 2
# Those whose tests measure time come after the others, one by one: they want the
# machine to themselves.
MEASURING := /(cmd/worker|internal/e2e|queue|throttle)$$
# More flags for `go test`, as in: make test TESTFLAGS='-run Gate -v'
TESTFLAGS ?=
# What is linted and tested.
PKGS ?= ./...

# Modules beside the main one: their dependencies stay out of its go.sum. They
# read files outside of themselves, of which Go's test cache does not know.
MODULES := internal/composetest internal/openapitest internal/stripetest bench/limiters
# A program under the race detector waits a second at its end for late reports,
# and there are as many as packages, twice.
export GORACE ?= atexit_sleep_ms=50
TOOL := $(GO) tool -modfile=lint/go.mod

.DEFAULT_GOAL := build

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/worker and bin/enqueue
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: test
test: deps lint ## What CI runs: install what tests need, lint, test
	$(GO) list $(PKGS) | grep -vE '$(MEASURING)' | xargs -r $(GO) test -race -timeout 10m -p $(P) $(TESTFLAGS)
	$(GO) list $(PKGS) | grep -E '$(MEASURING)' | xargs -r $(GO) test -race -timeout 20m -p 1 $(TESTFLAGS)
	@for module in $(MODULES); do \
		(set -x; $(GO) -C $$module test -race -timeout 10m -count 1 ./...) || exit 1; \
	done
	@$(MAKE) --no-print-directory bench

.PHONY: bench
bench: ## Run each benchmark once, to see that it runs
	$(GO) test -race -timeout 10m -p 1 -short -run '^$$' -bench . -benchtime 1x $(PKGS)

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
	@for module in $(MODULES); do \
		(set -x; $(GO) -C $$module vet ./... && $(GO) -C $$module fix -diff ./...) || exit 1; \
	done

.PHONY: deps
deps: ## Install what the tests need, where it is missing
	scripts/install-test-deps.sh

.PHONY: images
images: ## Take the pictures in docs/img anew
	UPDATE_IMAGES=1 $(GO) test -count 1 -timeout 10m -run TestDev ./internal/browsertest

.PHONY: clean
clean: ## Remove what build made
	rm -rf bin
