# Yardmaster's commands; `make` prints them. Each sets the machine up first, which takes no time once it is.

.DEFAULT_GOAL := help

# rustup's cargo is often in no PATH but that of login shells.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

bin := $(or $(CARGO_TARGET_DIR),target)/debug/yardmaster
JOB ?= examples/first-minute.toml

.PHONY: help setup run run-nodes test test-slow chaos lint bench bench-model screenshots ci

help: ## Prints this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s%s\n", $$1, $$2 }'

setup: ## Installs what is missing: PostgreSQL, libclang, a C compiler (as root, else in user space)
	@scripts/setup

run: setup ## Builds, and runs an example job on a private PostgreSQL (JOB=file for another)
	@cargo build
	@$(bin) run $(JOB)

run-nodes: setup ## Builds, and moves data between two nodes (three private servers, which end with it)
	@cargo build --bin yardmaster --example two_nodes
	@$(dir $(bin))examples/two_nodes $(bin)

test: setup ## Runs the tests (under 10 minutes)
	@scripts/setup browser
	cargo test

test-slow: setup ## Runs the tests, the long ones too, on the installed PostgreSQL and on 18
	@scripts/setup browser
	cargo test -- --include-ignored
	bin=$$(scripts/setup postgres-18) && YARDMASTER_PG_BIN=$$bin cargo test -- --include-ignored

chaos: setup ## Runs the long crash tests: 10,000 tasks, three minutes of harm; three nodes, two minutes (SEED=n repeats one)
	YARDMASTER_CHAOS_TASKS=10000 YARDMASTER_CHAOS_SECONDS=180 $(if $(SEED),YARDMASTER_CHAOS_SEED=$(SEED)) cargo test --test chaos -- --nocapture
	YARDMASTER_CHAOS_SECONDS=120 $(if $(SEED),YARDMASTER_CHAOS_SEED=$(SEED)) cargo test --test nodes chaos_ -- --nocapture

lint: setup ## Checks format and lints
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings

bench: setup ## Measures speed beside pgbench's limits, 4 minutes (BENCH="drain --json FILE" for a part)
	cargo bench --bench drain -- $(BENCH)

bench-model: setup ## Measures the pure model (criterion)
	cargo bench --bench model

screenshots: setup ## Makes the pictures of the page in docs/screenshots, with real data in a headless Chromium
	@scripts/setup browser
	cargo test --test http pictures -- --ignored

ci: ## Does what the continuous integration does: lint and test
	@.ci/run
