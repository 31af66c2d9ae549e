# The one entry. `make help` lists what there is.
# CARGO_FLAGS, PROFILE=release, BENCH_SECONDS, FUZZ_SECONDS, SOAK_SECONDS, SOAK_SEEDS, CLUSTER_SEEDS can be set.

SHELL := /bin/bash
.DEFAULT_GOAL := help
BENCH_SECONDS ?= 8
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 3600
SOAK_SEEDS ?= 2000
CLUSTER_SEEDS ?= 10000
DEMO_DIR ?= holdfast-demo
CLUSTER_DIR ?= holdfast-cluster

.PHONY: help run cluster-demo deb web prepare test unit lint deny e2e fuzz bench smbtorture campaign cluster-campaign soak clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

run: ## build, then serve a LUN on a mirrored pool made of files, and the web pages (data in holdfast-demo/)
	@web/build.sh --optional
	cargo build --release --locked --package holdfast
	exec "$${CARGO_TARGET_DIR:-target}/release/holdfast" demo --dir $(DEMO_DIR)

cluster-demo: ## build, then run a cluster of three nodes on this machine, and print how to kill one (needs etcd-server; data in holdfast-cluster/)
	@web/build.sh --optional
	cargo build --release --locked --package holdfast
	exec "$${CARGO_TARGET_DIR:-target}/release/holdfast" demo --nodes 3 --dir $(CLUSTER_DIR)

deb: ## build, then make a Debian package of it, in target/
	@web/build.sh --optional
	cargo build --release --locked --package holdfast
	packaging/deb.sh "$${CARGO_TARGET_DIR:-target}/release/holdfast" "$${CARGO_TARGET_DIR:-target}"

web: ## build the web pages, which the node embeds (needs Node.js 18 and npm; without them it says that it has none)
	@web/build.sh

prepare: ## install what the tests need (as root, on Debian; otherwise says what is missing)
	@tests/tools/prepare.sh

test: prepare ## lint, every test of the workspace, end-to-end cases; closing line with the sum
	@web/build.sh --optional
	@cargo xtask test

unit: ## only the tests of the workspace
	@cargo xtask unit

lint: ## rustfmt, clippy, tidy, cargo deny where installed
	@cargo xtask lint

deny: ## licences, advisories, banned and duplicate crates (needs cargo-deny)
	cargo deny check

e2e: prepare ## end-to-end cases at full size, with the optimised binary; E2E="name ..." picks
	@web/build.sh --optional
	@PROFILE=release cargo xtask e2e --set full $(E2E)

fuzz: ## fuzz every parser for FUZZ_SECONDS of processor time each (needs a nightly toolchain); adds to docs/results/fuzz.md
	@fuzz/run.py $(FUZZ_SECONDS) --report docs/results

bench: prepare ## compare with tgt, smbd and the raw disk; writes docs/results/ (BENCH_SECONDS a measurement)
	@BENCH_SECONDS=$(BENCH_SECONDS) bench/run.sh
	@BENCH_SECONDS=$(BENCH_SECONDS) bench/run.sh smb

smbtorture: prepare ## Samba's suites against each kind of share on a volume (as root); writes docs/results/
	cargo build --release --locked --package holdfast
	python3 tests/tools/smbtorture/run.py --holdfast "$${CARGO_TARGET_DIR:-target}/release/holdfast" \
		--work "$$(mktemp -d)" --report docs/results

campaign: ## power cuts on simulated disks, SOAK_SEEDS for each of eleven subjects and layouts; writes docs/results/
	@mkdir -p docs/results
	cargo run --release --locked --package crash_campaign -- --seeds $(SOAK_SEEDS) \
		--report docs/results/crash-campaign.md \
		--commit "$$(git describe --always --dirty)" --date "$$(date -u +%F)"

cluster-campaign: ## nodes that own pools, through pauses, partitions and crashes in simulated time; CLUSTER_SEEDS; writes docs/results/
	@mkdir -p docs/results
	cargo run --release --locked --package cluster_campaign -- --seeds $(CLUSTER_SEEDS) \
		--report docs/results/cluster-campaign.md \
		--commit "$$(git describe --always --dirty)" --date "$$(date -u +%F)"

soak: prepare campaign ## the crash campaign, then end-to-end cases with faults again and again for SOAK_SECONDS
	@PROFILE=release cargo xtask e2e --set full --repeat-for $(SOAK_SECONDS) $(E2E)

clean: ## remove what was built (not the demo's data)
	cargo clean
	rm -rf fuzz/target web/dist web/node_modules
