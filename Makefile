# `make` lists the targets.

SHELL := bash
.DEFAULT_GOAL := help

CARGO ?= cargo
# More arguments for the program that a target runs, as in: make run ARGS=--log-level=debug
ARGS ?=
# What `make fuzz` feeds: allocation, certificate, convert, flags, observers, parse_entry, reservations, reviews, sets or validate_pools
TARGET ?= parse_entry
# What `make image` builds for: linux/amd64, linux/arm64, or both with a comma; without it for this machine
PLATFORMS ?=
# The name of the image, without a tag
IMAGE ?= localhost/capi-ipam

generated := config/crd/ipam.cluster.x-k8s.io.yaml config/rbac/role.yaml config/self-managed-certs/role.yaml \
  config/webhook/manifests.yaml docs/api.md docs/flags.md manifests/ipam-components.yaml manifests/install.yaml \
  manifests/install-without-cert-manager.yaml

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# === use ===

.PHONY: demo
demo: rust control-plane ## Show it at work on a real API server of its own
	@$(CARGO) build --locked --bin manager --example demo
	@$(CARGO) run --locked --quiet --example demo -- $(ARGS)

.PHONY: run
run: rust ## Run the manager against the current kubeconfig, without webhooks (ARGS are its flags)
	$(CARGO) run --locked --bin manager -- --webhook-port=0 --insecure-diagnostics --diagnostics-address=127.0.0.1:8443 $(ARGS)

.PHONY: build
build: rust ## Build the programs for use, into target/release
	$(CARGO) build --locked --release --bins

.PHONY: image
image: rust ## Build the container image, into target/image (PLATFORMS=linux/amd64,linux/arm64)
	@CARGO='$(CARGO)' IMAGE='$(IMAGE)' hack/image/build.sh $(PLATFORMS)

.PHONY: release
release: ## Lay out manifests/ as clusterctl wants a release, into target/release-files
	@hack/release.sh

# === test ===

.PHONY: test
test: rust control-plane cluster-api ## Run all tests (ARGS choose some: ARGS='--test cluster')
	$(CARGO) test --locked --no-fail-fast $(ARGS)

.PHONY: faults
faults: rust control-plane ## Let one thing go wrong at every write and watch of the manager (ARGS=all for every plan)
	CAPI_IPAM_FAULTS=$(or $(ARGS),many) $(CARGO) test --locked --test faults one_thing -- --nocapture

.PHONY: teeth
teeth: rust control-plane ## See whether the plans of faults find mistakes made on purpose (ARGS choose some)
	@CARGO='$(CARGO)' hack/faults/teeth.sh $(ARGS)

.PHONY: model
model: rust ## Check larger scopes of the model of the protocol, SECONDS_EACH seconds each, else 600
	MODEL_SECONDS=$(or $(SECONDS_EACH),600) $(CARGO) test --locked --release --test model -- --ignored --nocapture

.PHONY: image-test
image-test: rust control-plane ## Check the image that `make image` made, and run its program (ARGS choose tests)
	@CARGO='$(CARGO)' hack/image/test.sh $(ARGS)

.PHONY: bench
bench: rust control-plane ## Measure how fast claims are bound and released (ARGS: --quick, --all, --series=…, --help)
	$(CARGO) bench --locked --bench claims -- $(ARGS)

.PHONY: bench-allocation
bench-allocation: rust ## Measure what allocation costs without Kubernetes (ARGS choose some, by name)
	$(CARGO) bench --locked --bench allocation -- $(ARGS)

.PHONY: bench-reviews
bench-reviews: rust control-plane ## Measure how fast webhooks answer (ARGS: how many reviews, else 20000)
	$(CARGO) bench --locked --bench reviews -- $(ARGS)

.PHONY: control-plane
control-plane: ## Find or build etcd, kube-apiserver and what else the tests start
	@programs=$$(hack/control-plane/ensure.sh) && echo "control plane: $$programs"
	@hack/control-plane/ensure.sh crds >/dev/null

.PHONY: cluster-api
cluster-api: ## Build clusterctl and Cluster API's own manager, for the tests
	@hack/control-plane/ensure.sh cluster-api >/dev/null

.PHONY: fuzz
fuzz: rust ## Feed arbitrary input to TARGET until stopped (ARGS are libFuzzer's)
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || { \
	  echo 'fuzzing needs nightly Rust and cargo-fuzz:'; \
	  echo '  rustup toolchain install nightly'; \
	  echo '  cargo install --locked cargo-fuzz'; \
	  exit 1; } >&2
	@mkdir -p fuzz/target/corpus/$(TARGET) fuzz/corpus/$(TARGET)
	$(CARGO) +nightly fuzz run $(TARGET) fuzz/target/corpus/$(TARGET) fuzz/corpus/$(TARGET) $(if $(ARGS),-- $(ARGS))

.PHONY: fuzz-all
fuzz-all: rust ## Run all fuzz targets, each for SECONDS_EACH seconds, else 600 (ARGS choose targets)
	@CARGO='$(CARGO)' hack/fuzz/all.sh $(ARGS)

.PHONY: fuzz-replay
fuzz-replay: rust ## Feed the committed inputs to the fuzz targets once, with stable Rust
	@CARGO='$(CARGO)' hack/fuzz/replay.sh

.PHONY: fuzz-check
fuzz-check: rust ## Check that the fuzz targets build
	$(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target -- -D warnings

# === check ===

.PHONY: lint
lint: fmt-check clippy docs ## Check format, clippy and docs; a warning is a failure

.PHONY: fmt
fmt: rust ## Format the sources
	$(CARGO) fmt
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml

.PHONY: fmt-check
fmt-check: rust ## Check that the sources are formatted
	$(CARGO) fmt --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check

.PHONY: clippy
clippy: rust ## Check the sources with clippy
	$(CARGO) clippy --locked --all-targets -- -D warnings

.PHONY: docs
docs: rust ## Build the API documentation, into target/doc
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --no-deps

.PHONY: deny
deny: rust ## Check versions, licences and sources of the dependencies (deny.toml)
	@deny=$$(hack/ensure-tool.sh cargo-deny) && "$$deny" --locked check -D warnings bans licenses sources

# === generate ===

# $(1): what the manager is to generate; $(2): the file.
define write
@mkdir -p $(dir $(2))
@$(CARGO) run --locked --quiet --bin manager -- generate $(1) >$(2).new || { rm -f $(2).new; exit 1; }
@mv $(2).new $(2)
@echo 'written: $(2)'
endef

# $(1): the folder of config; $(2): the file. The kubectl is the one of the control plane, in one version.
define render
@kubectl=$$(hack/control-plane/ensure.sh)/kubectl && \
  { echo '# Generated by `make generate` from $(1); do not edit.'; "$$kubectl" kustomize $(1); } >$(2).new || \
  { rm -f $(2).new; exit 1; }
@mv $(2).new $(2)
@echo 'written: $(2)'
endef

.PHONY: generate
generate: rust ## Write generated files: CRDs, roles, webhooks, docs/api.md, docs/flags.md; and manifests/ from config/
	$(call write,crds,config/crd/ipam.cluster.x-k8s.io.yaml)
	$(call write,rbac,config/rbac/role.yaml)
	$(call write,rbac-self-managed-certs,config/self-managed-certs/role.yaml)
	$(call write,webhooks,config/webhook/manifests.yaml)
	$(call write,flags,docs/flags.md)
	$(call write,api,docs/api.md)
	$(call render,config/clusterctl,manifests/ipam-components.yaml)
	$(call render,config/default,manifests/install.yaml)
	$(call render,config/without-cert-manager,manifests/install-without-cert-manager.yaml)

.PHONY: check-generated
check-generated: generate ## Check that what is made from code is committed as it is made
	@changed=$$(git status --porcelain -- $(generated)) || exit 1; \
	if [ -n "$$changed" ]; then \
	  git --no-pager diff HEAD -- $(generated); \
	  echo 'These files are not committed as the code makes them:'; \
	  echo "$$changed"; \
	  echo "'make generate' has written them now: look at them and commit them."; \
	  exit 1; \
	fi >&2

# === the rest ===

.PHONY: clean
clean: rust ## Remove what was built; the programs of the control plane stay in their cache
	$(CARGO) clean
	$(CARGO) clean --manifest-path fuzz/Cargo.toml

.PHONY: rust
rust:
	@command -v $(CARGO) >/dev/null || { echo 'cargo is missing: install Rust with rustup (it then fetches the version in rust-toolchain.toml by itself)' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'cc is missing: Rust links with a C compiler, and a dependency (ring) is partly written in C; install gcc or clang' >&2; exit 1; }
