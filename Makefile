# `make` lists the targets.

SHELL := bash
.DEFAULT_GOAL := help

CARGO ?= cargo
# Additional arguments for the program of a target, for example: make run ARGS=--log-level=debug
ARGS ?=
# The target of `make fuzz`: allocation, certificate, convert, flags, observers, parse_entry, reservations, reviews, sets, table or validate_pools
TARGET ?= parse_entry
# The platforms of `make image`: linux/amd64, linux/arm64, or both separated by a comma. Default: this machine
PLATFORMS ?=
# The command that prints a generated file
GENERATE ?= $(CARGO) run --locked --quiet --package xtask --
# The name of the image, without a tag
IMAGE ?= localhost/capi-ipam

generated := config/crd/ipam.cluster.x-k8s.io.yaml config/rbac/role.yaml config/self-managed-certs/role.yaml \
  config/cluster-addressing/role.yaml config/dns-endpoints/role.yaml config/rollout-metrics/role.yaml \
  config/cluster-addressing-webhook/manifests.yaml config/webhook/manifests.yaml \
  docs/api.md docs/flags.md docs/metrics.md manifests/ipam-components.yaml manifests/install.yaml manifests/install-without-cert-manager.yaml manifests/registry.yaml crates/kubectl-ipam/generated \
  charts/capi-ipam/files

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# === use ===

.PHONY: demo
demo: rust ## Run a demo against a temporary API server; with ARGS=--stay it keeps running
	@CARGO='$(CARGO)' hack/demo/build.sh
	@target/debug/demo $(ARGS)

.PHONY: demo-clusters
demo-clusters: rust ## Run a demo of two management clusters that share a range; with ARGS=--stay it keeps running
	@CARGO='$(CARGO)' hack/demo/build.sh nats
	@target/debug/demo-clusters $(ARGS)

.PHONY: install-tools
install-tools: rust ## Install kubectl-ipam, the plugin of kubectl, with cargo, and its tab completion
	$(CARGO) install --locked --path crates/kubectl-ipam
	@root=$${CARGO_INSTALL_ROOT:-$${CARGO_HOME:-$$HOME/.cargo}} && \
	  install -m 755 crates/kubectl-ipam/kubectl_complete-ipam "$$root/bin/" && \
	  echo "installed: $$root/bin/kubectl_complete-ipam"

.PHONY: krew
krew: rust ## Pack kubectl-ipam and its manifest for krew (URL: the folder of releases)
	$(CARGO) build --locked --release --package kubectl-ipam
	@hack/krew.sh target/release/kubectl-ipam $(URL)

.PHONY: run
run: rust ## Run the manager against the current kubeconfig without webhooks (ARGS: flags)
	$(CARGO) run --locked --bin manager -- --webhook-port=0 --insecure-diagnostics --diagnostics-address=127.0.0.1:8443 $(ARGS)

.PHONY: build
build: rust ## Build the release binaries into target/release
	$(CARGO) build --locked --release --bins

.PHONY: image
image: rust ## Build the container image and its software bill of materials into target/image (PLATFORMS=linux/amd64,linux/arm64)
	@CARGO='$(CARGO)' IMAGE='$(IMAGE)' hack/image/build.sh $(PLATFORMS)
	@hack/image/sbom.sh $(PLATFORMS)

.PHONY: release
release: ## Create a clusterctl release of manifests/ in target/release-files
	@hack/release.sh

# === test ===

.PHONY: check
check: fmt-check clippy unit-test ## Check format and clippy, and run the unit tests of all crates

.PHONY: unit-test
unit-test: rust ## Run the unit tests of all crates
	$(CARGO) test --locked --workspace --lib

.PHONY: test
test: rust control-plane cluster-api test-tools ## Run all tests, or a selection (ARGS='--test cluster')
	@CARGO='$(CARGO)' hack/test.sh $(ARGS)

.PHONY: pictures
pictures: rust ## Take pictures of the web page: all views in target/screenshots, and those of docs/images
	@CARGO='$(CARGO)' hack/demo/build.sh
	$(CARGO) test --locked --package kubectl-ipam --lib -- --ignored screenshots documentation_pictures

.PHONY: test-build
test-build: rust ## Build all tests, and the manager that they use
	$(CARGO) test --locked --workspace --no-run

.PHONY: faults
faults: rust control-plane ## Inject faults at every write and watch of the manager (ARGS=all: every plan)
	CAPI_IPAM_FAULTS=$(or $(ARGS),many) $(CARGO) test --locked --test faults single_faults -- --nocapture

.PHONY: mutants
mutants: rust control-plane ## Mutation testing: check that the fault plans detect injected bugs (ARGS: names)
	@CARGO='$(CARGO)' hack/faults/mutants.sh $(ARGS)

.PHONY: model
model: rust ## Check larger scopes of the protocol model (SECONDS_EACH=600)
	MODEL_SECONDS=$(or $(SECONDS_EACH),600) $(CARGO) test --locked --release --package capi-ipam-protocol --test model -- --ignored --nocapture
	$(CARGO) test --locked --release --workspace --lib observed -- --ignored --nocapture

.PHONY: image-test
image-test: rust control-plane ## Test the image of `make image` and its binary (ARGS: cargo test arguments)
	@CARGO='$(CARGO)' hack/image/test.sh $(ARGS)

.PHONY: bench
bench: rust control-plane ## Measure the bind and release rates (ARGS: --quick, --all, --series=…, --help)
	$(CARGO) bench --locked --bench claims -- $(ARGS)

.PHONY: bench-compare
bench-compare: rust control-plane ## Compare with the Go in-cluster provider on one API server, half an hour (ARGS: --compare-parts=idle)
	@program=$$(hack/control-plane/ensure.sh go-provider)/cluster-api-ipam-provider-in-cluster && \
	  $(CARGO) bench --locked --bench claims -- --compare "$$program" \
	  --compare-flags '--webhook-port=0 --diagnostics-address=0' $(ARGS)

.PHONY: bench-allocation
bench-allocation: rust ## Measure allocation without Kubernetes (ARGS: names of benchmarks)
	$(CARGO) bench --locked --bench allocation -- $(ARGS)

.PHONY: bench-scale
bench-scale: rust ## Measure the ledger with up to a million addresses in 1, 100 and 10,000 pools
	$(CARGO) bench --locked --bench scale

.PHONY: bench-reviews
bench-reviews: rust control-plane ## Measure the response times of webhooks (ARGS: number of reviews, default 20000)
	$(CARGO) bench --locked --bench reviews -- $(ARGS)

.PHONY: control-plane
control-plane: ## Find or build etcd, kube-apiserver and the other programs of the tests
	@programs=$$(hack/control-plane/ensure.sh) && echo "control plane: $$programs"
	@hack/control-plane/ensure.sh crds >/dev/null

.PHONY: cluster-api
cluster-api: ## Build clusterctl and the core manager of Cluster API for the tests
	@hack/control-plane/ensure.sh cluster-api >/dev/null

.PHONY: test-tools
test-tools: ## Build helm, Lua, NATS, Prometheus and the OpenTelemetry collector for the tests, and install Chromium
	@for set in chromium cilium cluster-api-operator external-dns helm lua metallb nats otel-collector prometheus; do hack/control-plane/ensure.sh $$set >/dev/null || exit 1; done

.PHONY: fuzz
fuzz: rust ## Fuzz TARGET until interrupted (ARGS: libFuzzer flags)
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || { \
	  echo 'fuzzing requires nightly Rust and cargo-fuzz:'; \
	  echo '  rustup toolchain install nightly'; \
	  echo '  cargo install --locked cargo-fuzz'; \
	  exit 1; } >&2
	@mkdir -p fuzz/target/corpus/$(TARGET) fuzz/corpus/$(TARGET)
	. hack/fuzz/profile.sh && $(CARGO) +nightly fuzz run $(TARGET) fuzz/target/corpus/$(TARGET) fuzz/corpus/$(TARGET) $(if $(ARGS),-- $(ARGS))

.PHONY: fuzz-all
fuzz-all: rust ## Run all fuzz targets (SECONDS_EACH=600, ARGS: targets)
	@CARGO='$(CARGO)' hack/fuzz/all.sh $(ARGS)

.PHONY: fuzz-replay
fuzz-replay: rust ## Run the fuzz targets once on the committed corpus, with stable Rust
	@CARGO='$(CARGO)' hack/fuzz/replay.sh

.PHONY: etcd-provider-check
etcd-provider-check: rust ## Build the etcd provider in examples/ with clippy: its tests use the same dependencies
	RUSTC_WORKSPACE_WRAPPER=clippy-driver PROTOC=$$(hack/ensure-tool.sh protoc) $(CARGO) test --locked \
	  --manifest-path examples/etcd-provider/Cargo.toml --target-dir target --all-targets --no-run

# === check ===

.PHONY: lint
lint: fmt-check clippy docs ## Check format, clippy and docs; warnings are errors

.PHONY: fmt
fmt: rust ## Format the sources
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path examples/etcd-provider/Cargo.toml

.PHONY: fmt-check
fmt-check: rust ## Check that the sources are formatted
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path examples/etcd-provider/Cargo.toml --check

.PHONY: clippy
clippy: rust ## Check the sources with clippy
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

.PHONY: docs
docs: rust ## Build the API documentation into target/doc
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --workspace --no-deps

.PHONY: deny
deny: rust ## Check versions, licences and sources of the dependencies (deny.toml)
	@deny=$$(hack/ensure-tool.sh cargo-deny) && "$$deny" --locked check -D warnings bans licenses sources

# === generate ===

# $(1): the argument of $(GENERATE); $(2): the file.
define write
@mkdir -p $(dir $(2))
@$(GENERATE) $(1) >$(2).new || { rm -f $(2).new; exit 1; }
@mv $(2).new $(2)
@echo 'written: $(2)'
endef

# $(1): the folder in config; $(2): the file. Uses the pinned kubectl of the control plane.
define render
@kubectl=$$(hack/control-plane/ensure.sh)/kubectl && \
  { echo '# Generated by `make generate` from $(1); do not edit.'; "$$kubectl" kustomize $(1); } >$(2).new || \
  { rm -f $(2).new; exit 1; }
@mv $(2).new $(2)
@echo 'written: $(2)'
endef

# $(1): the file; $(2): its name in the Helm chart. Helm warns of symbolic links.
define copy
@cp $(1) charts/capi-ipam/files/$(2)
@echo 'written: charts/capi-ipam/files/$(2)'
endef

.PHONY: generate
generate: rust ## Generate CRDs, roles, webhooks, the reference pages in docs/ and manifests/
	$(call write,crds,config/crd/ipam.cluster.x-k8s.io.yaml)
	$(call write,rbac,config/rbac/role.yaml)
	$(call write,rbac-self-managed-certs,config/self-managed-certs/role.yaml)
	$(call write,rbac-cluster-addressing,config/cluster-addressing/role.yaml)
	$(call write,rbac-dns-endpoints,config/dns-endpoints/role.yaml)
	$(call write,rbac-rollout-metrics,config/rollout-metrics/role.yaml)
	$(call write,webhooks,config/webhook/manifests.yaml)
	$(call write,cluster-webhook,config/cluster-addressing-webhook/manifests.yaml)
	$(call write,registry,manifests/registry.yaml)
	$(call write,flags,docs/flags.md)
	$(call write,metrics,docs/metrics.md)
	$(call write,api,docs/api.md)
	@$(GENERATE) --plugin crates/kubectl-ipam/generated
	@echo 'written: crates/kubectl-ipam/generated'
	$(call render,config/clusterctl,manifests/ipam-components.yaml)
	$(call render,config/default,manifests/install.yaml)
	$(call render,config/without-cert-manager,manifests/install-without-cert-manager.yaml)
	$(call copy,manifests/install.yaml,cert-manager.yaml)
	$(call copy,manifests/install-without-cert-manager.yaml,self-managed.yaml)
	$(call copy,config/prometheus/reader_role.yaml,metrics-reader.yaml)
	$(call copy,config/prometheus/rules.yaml,rules.yaml)
	$(call copy,config/prometheus/monitor.yaml,service-monitor.yaml)
	$(call copy,config/cluster-addressing/role.yaml,cluster-addressing-role.yaml)
	$(call copy,config/cluster-addressing/role_binding.yaml,cluster-addressing-role-binding.yaml)
	$(call copy,config/cluster-addressing-webhook/manifests.yaml,cluster-addressing-webhook.yaml)
	$(call copy,config/dns-endpoints/role.yaml,dns-endpoints-role.yaml)
	$(call copy,config/dns-endpoints/role_binding.yaml,dns-endpoints-role-binding.yaml)
	$(call copy,config/rollout-metrics/role.yaml,rollout-metrics-role.yaml)
	$(call copy,config/rollout-metrics/role_binding.yaml,rollout-metrics-role-binding.yaml)
	$(call copy,config/network-policy/network_policy.yaml,network-policy.yaml)

.PHONY: check-generated
check-generated: generate ## Check that the generated files are up to date
	@changed=$$(git status --porcelain -- $(generated)) || exit 1; \
	if [ -n "$$changed" ]; then \
	  git --no-pager diff HEAD -- $(generated); \
	  echo 'These generated files are out of date:'; \
	  echo "$$changed"; \
	  echo "'make generate' has updated them: review and commit them."; \
	  exit 1; \
	fi >&2

# === other ===

.PHONY: clean
clean: rust ## Remove the build results; the programs of the control plane stay in their cache
	$(CARGO) clean

.PHONY: rust
rust:
	@command -v $(CARGO) >/dev/null || { echo 'cargo is missing: install Rust with rustup, which then installs the version in rust-toolchain.toml' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'cc is missing: Rust links with a C compiler, and the crate ring contains C code; install gcc or clang' >&2; exit 1; }
