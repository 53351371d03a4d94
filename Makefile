SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
# Everything but the race detector is built alike, so that dependencies are compiled once.
export CGO_ENABLED := 0
GO_TEST_FLAGS ?=
TOOLS := .local/bin/tools
LAMBDA_ARCH ?= arm64
# Packages tested at once: tests wait for servers more than they compute.
TEST_PACKAGES ?= $(shell echo $$((2 * $$(nproc))))
MODULES := . infra/image infra/tools/collector test/manifests test/cluster test/conformance/funcgo

.PHONY: help
help: ## Show what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2}'

.PHONY: run
run: ## Start everything here: Postgres, Redis, NATS, issuer, all functions
	@mkdir -p .local/bin
	@[ -e .local/bin/local ] || echo "building (the first time takes a minute or two)"
	@go build -o .local/bin/local ./infra/local
	@exec .local/bin/local

.PHONY: observe
observe: $(TOOLS)/prometheus ## Start Prometheus with our rules beside a running make run
	@[ -e .local/env ] || { echo "start make run first"; exit 1; }
	@go build -o .local/bin/observe ./infra/observability
	@set -a; . .local/env; exec .local/bin/observe

.PHONY: cc
cc:
	@command -v "$$(go env CC)" >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev; } || { \
		echo "the race detector needs a C compiler; have root run: apt-get install gcc libc6-dev"; exit 1; }

.PHONY: test
test: cc ## Run every test with the race detector, on real servers
	@go build -o /dev/null ./infra/miniserver ./infra/lambda # which tests build, within their time
	CGO_ENABLED=1 go test -race -p $(TEST_PACKAGES) -timeout 15m $(GO_TEST_FLAGS) ./...

.PHONY: test-keycloak
test-keycloak: cc ## Sign in at a real Keycloak (Java 17 and Maven; 195 MB the first time)
	CGO_ENABLED=1 go test -race -tags keycloak -timeout 20m $(GO_TEST_FLAGS) ./infra/dev/keycloak
	CGO_ENABLED=1 go test -race -tags keycloak -timeout 20m $(GO_TEST_FLAGS) -run AtKeycloak ./test/signin

.PHONY: test-browser
test-browser: cc ## Use the pages in headless Chromium, and have axe-core judge them
	CGO_ENABLED=1 go test -race -tags browser -timeout 10m $(GO_TEST_FLAGS) ./test/browser

CHAOS := CGO_ENABLED=0 go test -tags chaos -count 1 -timeout 90m -v $(GO_TEST_FLAGS) ./test/chaos -run

.PHONY: chaos
chaos: ## Have everything fail at once under load, for CHAOS_FOR (90s), and check what was promised
	$(CHAOS) TestChaos

.PHONY: chaos-long
chaos-long: ## The same for an hour, with clocks an hour wrong among the faults, and 3,000 histories
	CHAOS_FOR=60m CHAOS_CLOCKS=1h $(CHAOS) TestChaos
	HISTORIES=3000 go test -count 1 -timeout 60m $(GO_TEST_FLAGS) ./test/history

.PHONY: ha
ha: ## Have the primary of each replicated store fail under load, FAILOVER_ROUNDS (2) times in each way (root; minutes)
	$(CHAOS) TestFailover

.PHONY: mutants
mutants: ## Plant bugs one by one, and see which tests notice (minutes, many)
	CGO_ENABLED=0 go test -tags mutants -count 1 -timeout 90m -v $(GO_TEST_FLAGS) ./test/mutants -run TestMutants

.PHONY: test-schemathesis
test-schemathesis: ## Have Schemathesis make requests of the OpenAPI document, SCHEMATHESIS_EXAMPLES (100) of each (minutes)
	CGO_ENABLED=0 go test -tags schemathesis -count 1 -timeout 90m -v $(GO_TEST_FLAGS) ./test/api -run TestSchemathesis

.PHONY: test-func
test-func: cc $(TOOLS)/func ## Run and build the functions with the func CLI, start the image under runc
	CGO_ENABLED=1 go test -race -tags func -timeout 15m $(GO_TEST_FLAGS) ./test/func

.PHONY: test-observability
test-observability: cc $(TOOLS)/prometheus $(TOOLS)/collector ## See the alerts firing in a real Prometheus; check rules, dashboard and collector
	cd infra/observability && $(CURDIR)/$(TOOLS)/promtool check config --lint=all --lint-fatal prometheus.yaml && $(CURDIR)/$(TOOLS)/promtool test rules rules_test.yaml
	$(TOOLS)/collector validate --config=infra/observability/collector.yaml
	CGO_ENABLED=1 go test -race -tags observability -timeout 10m $(GO_TEST_FLAGS) ./test/observability

# The services that Prometheus could discover are left out, with their clients.
$(TOOLS)/prometheus: infra/tools/prometheus/go.mod infra/tools/prometheus/go.sum
	@echo "building Prometheus and promtool (once, minutes)"
	@mkdir -p $(TOOLS)
	cd infra/tools/prometheus && go build -tags remove_all_sd -ldflags "-s -w" -o $(CURDIR)/$(TOOLS)/ tool
	@touch $@

$(TOOLS)/collector: $(wildcard infra/tools/collector/*)
	@mkdir -p $(TOOLS)
	cd infra/tools/collector && go build -ldflags "-s -w" -o $(CURDIR)/$@ .

.PHONY: test-manifests
test-manifests: ## Check the manifests as a cluster would, without one
	cd test/manifests && go test -timeout 5m $(GO_TEST_FLAGS) ./...

.PHONY: test-knative
test-knative: ## Apply them to a real API server with Knative (builds both the first time)
	cd test/cluster && go test -tags knative -timeout 60m -count 1 -v $(GO_TEST_FLAGS) .

CONFORMANCE := CONFORMANCE_RESULTS=$(CURDIR)/.local/conformance CGO_ENABLED=1 go test -race -tags conformance -count=1 -timeout 20m $(GO_TEST_FLAGS)

.PHONY: test-conformance
test-conformance: cc ## Ask every way of running the functions the same
	@rm -rf .local/conformance
	@go build -o /dev/null ./infra/miniserver ./infra/lambda # which tests build, within their time
	@cd test/conformance/funcgo && go build -o /dev/null .
	@cd test/conformance/queueproxy && go build -o /dev/null knative.dev/serving/cmd/queue
	$(CONFORMANCE) -skip Markdown ./test/conformance
	$(CONFORMANCE) -run Conformance ./infra/lambda
	@$(CONFORMANCE) -v -run Markdown ./test/conformance | grep -E '^(\||- )'

.PHONY: kind-up
kind-up: ## Make a kind cluster with Knative (needs Docker)
	@infra/knative/up.sh

.PHONY: kind-deploy
kind-deploy: ## Build and deploy everything into the kind cluster
	@infra/knative/deploy.sh

.PHONY: kind-down
kind-down: ## Remove the kind cluster
	@infra/knative/down.sh

.PHONY: lint
lint: tools ## Check Go (.golangci.yaml), protobuf, and that generated files and go.mod are current
	@for module in $(MODULES); do \
		echo "golangci-lint in $$module"; (cd $$module && $(CURDIR)/$(TOOLS)/golangci-lint run ./...) || exit 1; done
	cd proto && $(CURDIR)/$(TOOLS)/buf lint
	go run ./infra/generate -check
	@for module in $(MODULES) infra/tools/compose infra/tools/cosign infra/tools/func infra/tools/prometheus infra/bench/peers test/conformance/queueproxy; do \
		(cd $$module && go mod tidy -diff) || { echo "run go mod tidy in $$module"; exit 1; }; done
	@echo "lint: ok"

.PHONY: vulnerabilities
vulnerabilities: tools ## Ask Go's vulnerability database about what our programs call
	$(TOOLS)/govulncheck ./infra/miniserver ./infra/lambda

.PHONY: generate
generate: tools ## Write the generated files: protobuf, OpenAPI, docs tables
	cd proto && PATH="$(CURDIR)/$(TOOLS):$$PATH" buf generate
	go run ./infra/generate

.PHONY: vendored
vendored: ## Fetch the browser libraries that vendor.txt lists, of pages and tests (needs npm)
	@for folder in functions/internal/assets test/browser; do functions/internal/assets/fetch.sh $$folder || exit 1; done

.PHONY: proto-check
proto-check: tools ## Check that the generated protobuf code is current
	@rm -rf .local/proto-check && mkdir -p .local/proto-check
	@cd proto && PATH="$(CURDIR)/$(TOOLS):$$PATH" buf generate -o $(CURDIR)/.local/proto-check
	@cd .local/proto-check && find . -name '*.pb.go' | while read -r f; do cmp "$$f" "$(CURDIR)/proto/$$f" || { echo "proto: run make generate and commit it"; exit 1; }; done
	@echo "proto: current"

.PHONY: tools
tools: $(TOOLS)/.built

$(TOOLS)/.built: infra/tools/go.mod infra/tools/go.sum
	@echo "building the lint tools (once, a few minutes)"
	@mkdir -p $(TOOLS)
	cd infra/tools && go build -o $(CURDIR)/$(TOOLS)/ tool
	@touch $@

.PHONY: lambda
lambda: ## Build .local/lambda/bootstrap, which infra/lambda/template.yaml deploys
	CGO_ENABLED=0 GOOS=linux GOARCH=$(LAMBDA_ARCH) go build -trimpath -tags lambda.norpc -ldflags "-s -w" -o .local/lambda/bootstrap ./infra/lambda

.PHONY: images
images: ## Build the image with ko and push it with its SBOM, as KO_DOCKER_REPO
	@infra/image/push.sh

.PHONY: release
release: ## Push and sign the image as KO_DOCKER_REPO, and write the rest of a release, of VERSION
	@infra/image/release.sh

.PHONY: test-release
test-release: $(TOOLS)/cosign ## Make and sign a release in a registry of its own, and verify it
	cd infra/image && go test -tags release -timeout 30m -count 1 $(GO_TEST_FLAGS) -run Release ./...

$(TOOLS)/cosign: infra/tools/cosign/go.mod infra/tools/cosign/go.sum
	@echo "building cosign (once, minutes)"
	@mkdir -p $(TOOLS)
	cd infra/tools/cosign && go build -ldflags "-s -w" -o $(CURDIR)/$@ github.com/sigstore/cosign/v3/cmd/cosign
	@touch $@

.PHONY: test-images
test-images: ## Check the image in a registry of its own and under runc, and compose.yaml
	cd infra/image && go test -timeout 30m $(GO_TEST_FLAGS) ./...

.PHONY: test-compose
test-compose: $(TOOLS)/docker-compose ## Start compose.yaml in a Docker engine of its own, use it and crash it (root; minutes)
	go test -tags docker -timeout 40m -count 1 -v $(GO_TEST_FLAGS) ./test/compose

.PHONY: test-cluster
test-cluster: ## Make a kind cluster with Knative from nothing, deploy into it, use it and disturb it (root; an hour, later half)
	go test -tags cluster -timeout 90m -count 1 -v $(GO_TEST_FLAGS) ./test/kind

$(TOOLS)/docker-compose: infra/tools/compose/go.mod infra/tools/compose/go.sum
	@echo "building docker compose (once, minutes)"
	@mkdir -p $(TOOLS)
	cd infra/tools/compose && go build -ldflags "-s -w" -o $(CURDIR)/$@ github.com/docker/compose/v2/cmd
	@touch $@

.PHONY: func
func: $(TOOLS)/func ## Build Knative's func CLI as .local/bin/tools/func (once, minutes)

$(TOOLS)/func: $(wildcard infra/tools/func/*)
	@mkdir -p $(TOOLS)
	cd infra/tools/func && go build -trimpath -ldflags "-s -w" -o $(CURDIR)/$@ .

.PHONY: bench
bench: ## Measure ours beside the limits and the naive ways, in one run (minutes)
	go run ./infra/bench

.PHONY: bench-against
bench-against: ## Measure this tree beside the commit REF, by turns (minutes)
	go run ./infra/bench -against '$(or $(REF),$(error say which commit: make bench-against REF=main~5))'

.PHONY: bench-peers
bench-peers: ## Measure beside River, Watermill and Nakama, which it builds first (minutes)
	go run ./infra/bench -peers

.PHONY: migrate
migrate: ## Bring the databases of DATABASE_URL up to date
	go run ./infra/miniserver migrate

.PHONY: identity-key
identity-key: ## Print a key pair for IDENTITY_SIGNING_KEY and IDENTITY_VERIFY_KEYS
	@go run ./infra/miniserver keys

.PHONY: clean
clean: ## Remove everything that make run and make test keep under .local
	@go run ./infra/local -clean
