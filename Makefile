# Headcount: what one types. `make help` lists it.

CARGO ?= cargo
# One profile for everything: cargo compiles the dependencies once (see Cargo.toml).
PROFILE := --release --locked

.PHONY: help run demo test lint tools unit cluster bench micro prove fuzz deny config-docs

help: ## What there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: ## Start on the embedded store
	$(CARGO) run $(PROFILE)

demo: ## A rain of red packets in the terminal, from the campaign to the ledger
	$(CARGO) build $(PROFILE)
	@python3 scripts/demo.py

test: tools lint unit ## All that CI tests, after installing what the tests need

tools: ## Install servers, proxies and load generators that the tests need, where they are missing
	@bash scripts/install-test-tools.sh

lint: ## Format and lints, warnings as errors
	$(CARGO) fmt --check
	$(CARGO) clippy $(PROFILE) --all-targets -- -D warnings

unit: ## Every test binary
	$(CARGO) test $(PROFILE) --lib --bins --tests -- --test-threads=$${TEST_THREADS:-4}

cluster: ## A local 3+3 Redis Cluster and two gateways, until Ctrl-C
	$(CARGO) build $(PROFILE)
	@bash scripts/cluster.sh

bench: tools ## Two tables: ratios to a bare hyper server, each in one run
	$(CARGO) bench --locked --bench http
	$(CARGO) bench --locked --bench claims

micro: ## What counting costs without HTTP and store
	$(CARGO) bench --locked --bench sketch

prove: tools ## The long proofs, whose figures stand in docs/
	$(CARGO) test $(PROFILE) --tests -- --ignored --nocapture --test-threads=1 prove_

fuzz: ## cargo-fuzz on every target, 5 minutes each; needs a nightly toolchain
	cd fuzz && for target in $$($(CARGO) fuzz list); do $(CARGO) +nightly fuzz run $$target -- -max_total_time=300 || exit 1; done

deny: ## Licences, bans and sources of the dependencies
	@bash scripts/deny.sh
