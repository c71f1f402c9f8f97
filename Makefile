# Plimsoll. `make help` lists the targets; the two that matter first are `make demo` and `make test`.
VERSION ?= 0.1.0
IMAGE_TAG_BASE ?= ghcr.io/plimsoll-dev/plimsoll-operator
IMG ?= $(IMAGE_TAG_BASE):v$(VERSION)
BUNDLE_IMG ?= $(IMAGE_TAG_BASE)-bundle:v$(VERSION)
CHANNELS ?= candidate-v0
DEFAULT_CHANNEL ?= candidate-v0
CONTAINER_TOOL ?= docker
PLATFORMS ?= linux/amd64,linux/arm64
# The other architectures whose agents the image of `make image` holds beside its own: the manager gives them to running instances there.
AGENTS ?= $(filter-out $(shell go env GOARCH),amd64 arm64)
KUBECTL ?= kubectl
OPERATOR_SDK ?= operator-sdk
NAMESPACE ?= plimsoll-system

SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Everything that is built but not committed lies outside the checkout, except the product's binaries in bin/.
CACHE := $(or $(PLIMSOLL_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/plimsoll)
TOOLS := $(CACHE)/tools
BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=v$(VERSION)"

# IMG if a person gave it: a cluster of their own cannot pull a default that nobody pushed.
GIVEN := $(if $(filter command line environment,$(origin IMG)),$(IMG))

# run NAME builds a program of tests/ and becomes it, so that signals reach it (those to `go run` do not).
run = @go build -buildvcs=false -o $(CACHE)/run/$(1) ./tests/$(1) && exec $(CACHE)/run/$(1)

# Modules of their own with code of ours, which "./..." does not reach.
OWN_MODULES := tests/cluster/csi

# buildah's storage lies in the cache too.
BUILDAH := buildah --root $(CACHE)/containers/storage --runroot $(CACHE)/containers/run --storage-driver overlay

# A tool's version is what its go.mod pins, so that a new pin is a new file.
pin = $(shell awk '$$1 == "$(2)" && NF > 1 {print $$2; exit}' tools/$(1)go.mod)
CONTROLLER_GEN := $(TOOLS)/controller-gen-$(call pin,,sigs.k8s.io/controller-tools)
CRD_REF_DOCS := $(TOOLS)/crd-ref-docs-$(call pin,,github.com/elastic/crd-ref-docs)
# bpf2go comes with the library that loads what it makes.
export BPF2GO := $(TOOLS)/bpf2go-$(call pin,../,github.com/cilium/ebpf)
GOFUMPT := $(TOOLS)/gofumpt-$(call pin,,mvdan.cc/gofumpt)
KUSTOMIZE := $(TOOLS)/kustomize-$(call pin,kustomize/,sigs.k8s.io/kustomize/kustomize/v5)
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(call pin,lint/,github.com/golangci/golangci-lint/v2)

##@ Start here
.PHONY: help demo demo-down test
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' Makefile

demo: ## Run a three-replica PostgreSQL on a local three-node Kubernetes (CLUSTER=current IMG=...: on your own cluster).
	$(call run,demo) up --cluster "$(or $(CLUSTER),local)" --image "$(GIVEN)" --namespace "$(NAMESPACE)"

demo-down: ## Take the demo away (CLUSTER=current: refused while Databases that are not the demo's would go too).
	$(call run,demo) down --cluster "$(or $(CLUSTER),local)" --namespace "$(NAMESPACE)"

test: ## Run every check and test, on this machine, as CI does.
	$(call run,suite)

##@ Development
.PHONY: manifests generate docs bpf packages fmt vet lint lint-fix lint-config test-unit test-model test-e2e verify bench bench-ha bench-random bench-scale bench-beside bench-probe bench-report
manifests: $(CONTROLLER_GEN) ## Generate CRDs and webhook configuration.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(if $(wildcard controllers/admission),$(CONTROLLER_GEN) webhook paths=./controllers/admission/... output:webhook:artifacts:config=config/webhook)

generate: $(CONTROLLER_GEN) ## Generate deep copies.
	$(CONTROLLER_GEN) object paths=./api/...

docs: $(CRD_REF_DOCS) ## Generate the reference of the API and of the flags.
	$(CRD_REF_DOCS) --source-path=api --config=docs/reference/crd-ref-docs.yaml --renderer=markdown --output-path=docs/reference/api.md --log-level=ERROR
	@{ printf '# Flags of the manager\n\nGenerated: the output of `plimsoll manager --help`.\n\n```\n'; env -u POD_NAMESPACE go run ./cmd manager --help; printf '```\n\n# Flags of the probe\n\nThe output of `plimsoll probe --help`.\n\n```\n'; env -u NODE_NAME go run ./cmd probe --help; printf '```\n'; } > docs/reference/flags.md

bpf: $(BPF2GO) ## Compile the programs for the kernel with the clang of Debian 12, and generate their Go.
	@{ command -v clang-14 && command -v llvm-strip-14; } >/dev/null || $(MAKE) packages
	go generate ./bpf/...

packages: # of Debian, what is missing of those that checks need
	$(call run,suite) --only packages

fmt: $(GOFUMPT) ## Format.
	$(GOFUMPT) -w $$(git ls-files '*.go' ':!**/zz_generated*')

vet: ## Run go vet.
	go vet ./...
	@for module in $(OWN_MODULES); do go -C $$module vet ./...; done

lint: $(GOLANGCI_LINT) ## Run the linters of .golangci.yml.
	$(GOLANGCI_LINT) run --allow-parallel-runners
	@for module in $(OWN_MODULES); do (cd $$module && $(GOLANGCI_LINT) run --allow-parallel-runners); done

lint-fix: $(GOLANGCI_LINT) ## Run the linters and mend what they can.
	$(GOLANGCI_LINT) run --allow-parallel-runners --fix

lint-config: $(GOLANGCI_LINT) ## Check .golangci.yml.
	$(GOLANGCI_LINT) config verify

test-unit: ## Run the tests that need no cluster (the first time it builds an API server and cert-manager, which takes a while).
	@go run -buildvcs=false ./tests/cluster/cmd/cluster build --api
	go test -race -parallel=3 $$(go list ./... | grep -vE '/tests/(e2e|model)$$')
	@for module in $(OWN_MODULES); do go -C $$module test -race ./...; done

test-model: ## Search all states of the protocol's model, the configurations that are too large for `make test` among them (needs spin and gcc).
	PLIMSOLL_MODEL_LARGER=1 go test -v -count=1 -timeout=90m ./tests/model

test-e2e: ## Run the end-to-end tests alone on the local cluster (RUN=regexp selects).
	$(call run,suite) --only e2e --run "$(RUN)"

verify: manifests generate docs bpf ## Regenerate everything and expect no change.
	@git diff --exit-code -- api bpf config docs || { echo "verify: generated files were out of date; commit the change above" >&2; exit 1; }
	@test -z "$$(git status --porcelain -- api bpf config docs)" || { git status --short -- api bpf config docs; echo "verify: commit the new generated files" >&2; exit 1; }

bench: ## Measure on the local cluster (RUNS=20); writes docs/benchmarks/*.json.
	$(call run,suite) --only bench --run "$(RUN)" --runs "$(or $(RUNS),20)"

bench-ha: ## Run the whole fault matrix (RUNS=20 EVENTS=a,b), go on where it was interrupted, print a report, write docs/benchmarks/postgres.json.
	$(call run,suite) --only bench-ha --runs "$(or $(RUNS),20)" --events "$(EVENTS)"

bench-random: ## Hurt a Database at random (MINUTES=30 SEED=) and look for losses, second writers and leaks.
	$(call run,suite) --only bench-random --minutes "$(or $(MINUTES),30)" --seed "$(SEED)"

bench-scale: ## Give one manager many Databases with simulated agents (DATABASES=1000); writes docs/benchmarks/manager.json.
	$(call run,suite) --only bench-scale --databases "$(or $(DATABASES),1000)"

bench-beside: ## Play events to a Database alone and beside many (DATABASES=1000 RUNS=20 EVENTS=pod-delete,switchover); writes docs/benchmarks/manager.json.
	$(call run,suite) --only bench-beside --databases "$(or $(DATABASES),1000)" --runs "$(or $(RUNS),20)" --events "$(EVENTS)"

bench-probe: ## Measure what a probe costs a server, beside pg_stat_statements and a log of all statements (RUNS=20); writes docs/benchmarks/probe.json.
	$(call run,suite) --only bench-probe --runs "$(or $(RUNS),20)"

bench-report: ## Draw docs/benchmarks.md from docs/benchmarks/*.json.
	@go run ./tests/bench/report

##@ Build
.PHONY: build run agents image image-push docker-build docker-push docker-buildx build-installer bundle bundle-build bundle-push
build: ## Build the three programs into bin/.
	@mkdir -p bin
	$(BUILD) -o bin/plimsoll ./cmd
	$(BUILD) -o bin/plimsoll-agent ./cmd/plimsoll-agent
	$(BUILD) -o bin/kubectl-plimsoll ./cmd/kubectl-plimsoll

run: ## Run the manager here, without webhooks, against the cluster of the current kubeconfig.
	RELATED_IMAGE_AGENT=$(IMG) go run ./cmd manager --leader-elect=false --webhook=false

agents: # of the other architectures
	@mkdir -p bin && rm -f bin/plimsoll-agent-*
	$(foreach arch,$(AGENTS),GOARCH=$(arch) $(BUILD) -o bin/plimsoll-agent-$(arch) ./cmd/plimsoll-agent &&) true

image: build agents ## Build the image $(IMG) from local binaries with buildah, with no base image and no network.
	@cp -L /etc/ssl/certs/ca-certificates.crt bin/
	$(BUILDAH) build --isolation chroot --build-context build=bin --build-arg VERSION=$(VERSION) --timestamp 0 -q -t $(IMG) -f Dockerfile .

image-push: ## Push the image of `make image` to TO (docker://...); its digest goes to the file DIGEST.
	@$(BUILDAH) push -q --tls-verify=$(or $(TLS_VERIFY),true) --digestfile $(DIGEST) $(IMG) $(TO)

docker-build: ## Build the image $(IMG) with CONTAINER_TOOL (docker, podman, buildah).
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) -t $(IMG) .

docker-push: ## Push the image $(IMG).
	$(CONTAINER_TOOL) push $(IMG)

docker-buildx: ## Build and push the image $(IMG) for all PLATFORMS.
	$(CONTAINER_TOOL) buildx build --platform $(PLATFORMS) --build-arg VERSION=$(VERSION) --push -t $(IMG) .

build-installer: manifests $(KUSTOMIZE) ## Write dist/install.yaml: everything that `make deploy` would apply.
	@mkdir -p dist
	@$(call render,default) > dist/install.yaml

bundle: manifests $(KUSTOMIZE) ## Generate the OLM bundle with OPERATOR_SDK.
	$(OPERATOR_SDK) generate kustomize manifests -q --interactive=false
	$(call render,manifests) | $(OPERATOR_SDK) generate bundle -q --overwrite --version $(VERSION) --channels $(CHANNELS) --default-channel $(DEFAULT_CHANNEL)
	@# OLM writes spec.conversion once it has the webhook's address and authority; a CRD that names another meanwhile serves nobody.
	cp config/crd/bases/plimsoll.dev_*.yaml bundle/manifests/
	$(OPERATOR_SDK) bundle validate ./bundle

bundle-build: ## Build the bundle's image.
	$(CONTAINER_TOOL) build -f bundle.Dockerfile -t $(BUNDLE_IMG) .

bundle-push: ## Push the bundle's image.
	$(CONTAINER_TOOL) push $(BUNDLE_IMG)

##@ Deployment, on the cluster of the current kubeconfig
.PHONY: install uninstall deploy undeploy
# render NAME prints config/NAME with the image and the namespace in place, and changes no file.
render = $(KUSTOMIZE) build config/$(1) | sed -e 's|ghcr.io/plimsoll-dev/plimsoll-operator:latest|$(IMG)|g' -e 's|plimsoll-system|$(NAMESPACE)|g'

# spare lets nobody take the CRD, and with it every Database of the cluster, without meaning it. Who does not know refuses.
define spare
@[ "$(DATABASES)" != delete ] || exit 0; \
crd="$$($(KUBECTL) get crd databases.plimsoll.dev --request-timeout=30s --ignore-not-found -o name)"; [ -n "$$crd" ] || exit 0; \
found="$$($(KUBECTL) get databases.plimsoll.dev -A --request-timeout=30s -o jsonpath='{range .items[*]}  {.metadata.namespace}/{.metadata.name}{"\n"}{end}')"; \
[ -n "$$found" ] || exit 0; \
printf '%s\n' "$@: the CRD would go, and with it every Database of this cluster:" "$$found" \
	"Delete them first, or say that they go with it: make $@ DATABASES=delete" >&2; exit 1
endef
ignore-not-found ?= true

install: manifests $(KUSTOMIZE) ## Install the CRDs.
	$(KUSTOMIZE) build config/crd | $(KUBECTL) apply --server-side -f -

uninstall: $(KUSTOMIZE) ## Remove the CRDs (refused while there are Databases, unless DATABASES=delete).
	$(spare)
	$(KUSTOMIZE) build config/crd | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

deploy: manifests $(KUSTOMIZE) ## Install the operator with image $(IMG).
	$(call render,default) | $(KUBECTL) apply --server-side -f -

undeploy: $(KUSTOMIZE) ## Remove the operator and the CRDs (refused while there are Databases, unless DATABASES=delete).
	$(spare)
	$(call render,default) | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

##@ Tools, built from the pins below tools/
.PHONY: tools controller-gen kustomize golangci-lint
tools: $(CONTROLLER_GEN) $(CRD_REF_DOCS) $(BPF2GO) $(GOFUMPT) $(KUSTOMIZE) $(GOLANGCI_LINT) ## Build all tools.
controller-gen: $(CONTROLLER_GEN) ## Build controller-gen.
kustomize: $(KUSTOMIZE) ## Build kustomize.
golangci-lint: $(GOLANGCI_LINT) ## Build golangci-lint.

# tool MODULE,PACKAGE builds a pinned tool beside its place, so that two makes at once do not meet.
tool = @mkdir -p $(TOOLS) && echo "building $(notdir $@)" && CGO_ENABLED=0 go -C tools/$(1) build -trimpath -o $@.$$$$ $(2) && mv $@.$$$$ $@
$(CONTROLLER_GEN): ; $(call tool,.,sigs.k8s.io/controller-tools/cmd/controller-gen)
$(CRD_REF_DOCS): ; $(call tool,.,github.com/elastic/crd-ref-docs)
$(BPF2GO): ; $(call tool,..,github.com/cilium/ebpf/cmd/bpf2go)
$(GOFUMPT): ; $(call tool,.,mvdan.cc/gofumpt)
$(KUSTOMIZE): ; $(call tool,kustomize,sigs.k8s.io/kustomize/kustomize/v5)
$(GOLANGCI_LINT): ; $(call tool,lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
