# `make help` lists the targets.

GO ?= go
# Packages tested in parallel, beside the browser and the modules: most of them mostly wait.
P ?= 2
# Packages whose tests run fleets. Their processes have real-time priority, and starve other tests.
FLEETS := /internal/test/(e2e|faults)$$
# Packages with tests that measure time, or what a job costs, and the names of these tests. They run
# before all other processes, or where that is not allowed beside no other test; and without the race
# detector, which changes what they measure. Of more than three at a time, some disturb others.
CORE := /(queue|throttle|throttle/httplimit)$$
TIMED := ^TestTimed
# Their tests that take one step after the other, so that the race detector has nothing to see, and that
# take several times as long with it, or to compile.
STEPS := ^(ExampleTransport_.*|Test(ArchiveMoves|BurstAroundAnEdge|CancelManyForgetsNone|CapacityIsUsed|CounterSustainsItsRate|Events|HundredThousandTenants|LawOverChanges|LayersAtRandom|MeteredLimitIsUsed|Model|NoTenantMeetsAFieldOfOurs|NothingIsLostOrWonByRounding|OverridesFollowTheLimits|PeriodicOverlapModel|PlainAnswersAlike|PolicingNeverGains|RedisPageNamesTheCode|RetryAfterIsTheMoment|ScriptsOnDamagedState|SettleGivesBackAnyPart|VerbsByState|WorkersFollowPauses))$$
# Packages tested without the race detector, which takes several times the processor: models, which
# start no goroutines or take their time; those whose tests judge programs, in which it would watch
# only the tests; and, but for make test-long, those with which the libraries of providers would be
# compiled once more.
MODELS := /(bench/scale|internal/(partition|redact)|internal/test/(acltest|cover|docs|golden|law|limitplots|mutants)|queue/internal/(cron|fluid))$$
PROVIDERS := clients/(ai|email|payment|sandbox|webhook)|cmd/.*|internal/(jobline|payloads|settings|telemetry)|worker
RACELESS := /(internal/test/.*|$(if $(HEADGATE_TEST_LONG),cmd/worker,$(PROVIDERS)))$$
# In make test-long, they run a worker for minutes that must use all of its limits.
ALONE := $(if $(HEADGATE_TEST_LONG),/cmd/worker$$)
# Packages whose tests run programs, a browser or long models, for minutes.
SLOW := /(cmd/.*|internal/test/(acltest|browsertest|e2e|faults|limitplots|pacer|redistest))$$
# More flags for `go test`, as in: make test TESTFLAGS='-run Gate -v'
TESTFLAGS ?=
# The packages to lint and test.
PKGS ?= ./...

# Modules besides the main one, so that their dependencies stay out of its go.sum. They run
# with -count 1, because they read files that Go's test cache does not track, and without the
# race detector, with which their dependencies would be compiled a second time.
MODULES := internal/test/audit internal/test/composetest internal/test/openapitest internal/test/stripetest bench/limiters bench/queue
# A program under the race detector waits a second at exit for late reports. That adds up
# over all packages.
export GORACE ?= atexit_sleep_ms=50
# The folder into which scripts/install-test-deps.sh unpacks programs.
export PATH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/headgate-test/bin:$(PATH)
# Without vet, because lint runs it. With the default, a third of the time of tests, and of compiling
# them, is garbage collection.
PLAIN := env GOGC=400 $(GO) test -vet=off -timeout $(if $(HEADGATE_TEST_LONG),60m,30m)
# A test has no use for what a debugger needs, which is a fifth of the time to compile it.
LEAN := -gcflags=all=-dwarf=false
RACE := -race $(LEAN)
TEST := $(PLAIN) $(RACE)
# The compiler spends a quarter of its time on garbage that its end would free.
COMPILE := GOGC=off GOMEMLIMIT=2GiB $(GO)
# Not `go tool`, which would compile all of these once more, without the flags of tests.
TOOL := $(COMPILE) run -modfile=lint/go.mod
# Before all other processes, where the system allows it; else nothing.
AHEAD := $(if $(shell chrt --rr 1 true 2>/dev/null && echo 1),-exec 'chrt --rr 1')

.DEFAULT_GOAL := build

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/worker and bin/enqueue
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: check
check: deps lint ## Run lint and the quick tests
	$(GO) list $(PKGS) | grep -vE '$(SLOW)' | xargs -r $(PLAIN) -short -skip '$(TIMED)' -timeout 5m $(TESTFLAGS)

# What measures mostly waits, so the race detector's compiling, the models and lint go on beside it. Long models keep the
# processors busy by themselves, and with more beside them a page of 100,000 tenants takes longer than a browser waits.
AT_ONCE := $(if $(HEADGATE_TEST_LONG),3,7)
# go list only compiles: go build also links all programs, and keeps nothing of that.
.PHONY: test
test: export GOFLAGS += $(LEAN)
test: deps ## Run what CI runs: deps, lint and all tests
	$(COMPILE) list -export -f '' $(PKGS) >/dev/null
	@$(MAKE) --no-print-directory -j $(AT_ONCE) test-lint test-models test-timed test-core test-limiter test-parts test-modules test-bench
	$(if $(ALONE),$(GO) list $(PKGS) | grep -E '$(ALONE)' | xargs -r $(PLAIN) $(AHEAD) $(TESTFLAGS))

# The packages tested with the race detector.
RACED := $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(PKGS) | grep -vE '$(MODELS)|$(RACELESS)'

.PHONY: test-lint test-race vet-modules
test-race:
	@$(RACED) | nice -n 19 xargs -r env $(COMPILE) list -export -test -f '' $(RACE) >/dev/null

test-lint: test-race
	@nice -n 19 $(MAKE) --no-print-directory vet-modules lint

vet-modules:
	@for module in $(MODULES); do (set -x; cd $$module; $(COMPILE) vet ./...) || exit 1; done

.PHONY: test-models test-fleets test-timed
test-models: $(if $(AHEAD),,test-timed)
	$(GO) list $(PKGS) | grep -E '$(MODELS)' | xargs -r $(PLAIN) -p 1 $(TESTFLAGS)
	$(GO) list $(PKGS) | grep -E '$(CORE)' | xargs -r $(PLAIN) -p 1 -run '$(STEPS)' $(TESTFLAGS)

test-fleets:
	$(GO) list $(PKGS) | grep -E '$(FLEETS)' | xargs -r $(PLAIN) -p 1 $(TESTFLAGS)
	@$(MAKE) --no-print-directory bench PKGS="$$($(GO) list $(PKGS) | grep -E '$(FLEETS)' | xargs)"

test-timed: test-fleets
	$(GO) list $(PKGS) | grep -E '$(CORE)' | xargs -r $(PLAIN) $(AHEAD) -p 1 -parallel 3 -run '$(TIMED)' $(TESTFLAGS)

# What the other tests wait for.
# The modules and benchmarks come after the browser, beside which they would keep two cores busy.
MEASURED := $(if $(AHEAD),test-fleets,test-timed)
.PHONY: test-raced test-packages test-limiter test-core test-browser test-modules test-bench
test-raced: $(MEASURED) test-race
	$(RACED) | grep -vE '$(CORE)' | xargs -r $(TEST) -p $(P) $(TESTFLAGS)

# In the order of go list, the longest of these, cmd/worker, is among the first.
test-packages: test-raced
	$(GO) list $(PKGS) | grep -E '$(RACELESS)' | grep -vE '$(FLEETS)|$(MODELS)|browsertest$(addprefix |,$(ALONE))' | xargs -r $(PLAIN) -p $(P) $(TESTFLAGS)

test-limiter: test-packages
	$(GO) list $(PKGS) | grep -E '$(CORE)' | grep throttle | xargs -r $(TEST) -p 2 -skip '$(TIMED)|$(STEPS)' $(TESTFLAGS)

# It takes the longest, and waits half of that.
test-core: test-raced
	$(GO) list $(PKGS) | grep -E '$(CORE)' | grep -v throttle | xargs -r $(TEST) -skip '$(TIMED)|$(STEPS)' $(TESTFLAGS)

test-browser: $(MEASURED)
	$(GO) list $(PKGS) | grep browsertest | xargs -r $(PLAIN) $(TESTFLAGS)

test-modules: test-browser
	@for module in $(MODULES); do \
		(set -x; cd $$module; $(PLAIN) -count 1 ./...) || exit 1; \
	done

# In their short form, they judge nothing. Of more at once beside the tests of queue, none has time enough.
test-bench: test-parts
	@$(MAKE) --no-print-directory bench PKGS="$$($(GO) list $(PKGS) | grep -vE '$(FLEETS)' | xargs)"

.PHONY: test-long
test-long: modern ## Run test with the long models at full length, and mutants, after a change of the core
	HEADGATE_TEST_LONG=1 $(MAKE) test
	$(MAKE) mutants

.PHONY: faults
faults: deps ## Break Redis, workers and receivers; write docs/reliability.md
	$(GO) test -count 1 -timeout 60m -parallel 1 -v -run 'TestFaults$$' ./internal/test/faults -all -update

# Tests of each part of package queue, a few seconds, that make test also runs on a Cluster: without the
# race detector, which sees them on one server, and in make test-cluster.
PARTS := Unregister|Direct|Conformance|RecordIsOnce|Verb|Override|Pause|Recover|Key|Cancel|Gauges|ListJobs|Explain|LostReply|Workers\b|UnservedIsSaid|PartitionsChange|JobsOfATenant|Renewed|ServedAtOnce|DamagedLeases
test-parts: test-packages test-modules
	@$(MAKE) --no-print-directory test-cluster CLUSTER='^Test($(PARTS))' RACE=

# The tests to run on a Cluster. Those that measure come last, alone and without the race detector.
CLUSTER ?= .

.PHONY: test-cluster test-parts
test-cluster: ## Run the tests of queues on a Redis Cluster, and those of its failovers
	cd queue && HEADGATE_TEST_CLUSTER=1 $(TEST) -run '$(CLUSTER)' -skip '$(TIMED)' $(TESTFLAGS)
	cd queue/inspect && HEADGATE_TEST_CLUSTER=1 $(TEST) -run '$(CLUSTER)' $(TESTFLAGS)
	$(if $(filter .,$(CLUSTER)),cd queue && HEADGATE_TEST_CLUSTER=1 $(PLAIN) $(AHEAD) -parallel 1 -run '$(TIMED)' $(TESTFLAGS))

.PHONY: bench
bench: ## Run each benchmark once, to check that it works
	$(GO) list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' $(PKGS) | \
		xargs grep -l '^func Benchmark' | xargs -n 1 dirname | sort -u | \
		xargs -r $(PLAIN) -p 1 -short -run '^$$' -bench . -benchtime 1x

.PHONY: lint
lint: ## Run gofmt, go vet, staticcheck and the import rules
	@unformatted=$$(find . -name node_modules -prune -o -name '*.go' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then \
		printf 'not formatted, run gofmt -w:\n%s\n' "$$unformatted"; exit 1; \
	fi
	$(COMPILE) vet $(PKGS)
	$(TOOL) honnef.co/go/tools/cmd/staticcheck $(PKGS)
	$(TOOL) github.com/OpenPeeDeeP/depguard/v2/cmd/depguard $(PKGS)

.PHONY: modern
modern: ## Check that go fix finds nothing to write in a newer way
	@for module in . $(MODULES); do (set -x; cd $$module; $(GO) fix -diff ./...) || exit 1; done

.PHONY: deps
deps: ## Install missing programs that the tests need
	scripts/install-test-deps.sh

.PHONY: audit
audit: ## Look for known vulnerabilities, and list dependencies and their licences
	cd internal/test/audit && $(GO) run . ../../..

.PHONY: images
images: ## Take the pictures in docs/img again
	UPDATE_IMAGES=1 $(GO) test -count 1 -timeout 10m -run TestDev ./internal/test/browsertest

.PHONY: clean
clean: ## Remove bin/
	rm -rf bin

# The packages whose tests to run, as in: make cover COVER=./queue
COVER ?=

.PHONY: cover
cover: ## Print the line coverage of the Lua scripts
	$(GO) run ./internal/test/cover $(COVER)

# Which mutants to run, as in: make mutants MUTANTS='-j 2 dispatch.lua'
MUTANTS ?=

.PHONY: mutants
mutants: ## Break one promise at a time, to check that a test fails
	$(GO) run ./internal/test/mutants $(MUTANTS)
