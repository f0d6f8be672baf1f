# make bench     from a fresh machine to a table of what the extension costs on it
# make bench-churn   what it costs when more distinct statements keep coming than its table holds
# make calibrate whether the load driver measures rightly on this box, and what it costs against pgbench
# make bench-instructions   what it adds to a statement in instructions, repeatable on any machine; takes valgrind
# make bench-reading   what reading the statistics costs, and what it does to those who write them
# make bench-results   everything that docs/performance.md tells of, into docs/results; takes some fifteen minutes
# make bench-micro   what the table's own steps cost, one thread and two, without a server
# make test      everything that must pass, on 15; on 16, 17 and 18 what must hold everywhere
# make test-all  everything that must pass, on 15, 16, 17 and 18
# make audit     licences, sources and known vulnerabilities of all that is built here; takes a network with the advisories
# make regress   SOURCE=/path/postgresql-15.x: PostgreSQL's own regression suite with the module and without, some minutes
# make memcheck  SOURCE=/path/postgresql-15.x: files of that suite under valgrind (TESTS="test_setup select ..."), 20 minutes
# make test-server   PG_CONFIG=/path/pg_config: the tests on servers of their own, of that server; with PG_CONFIG, regress
#                and memcheck are of that one, too: of one that was built with assertions, say
# make torture   random programs, crashes and stops by the hundred, and memory over many statements: some 20 minutes
# make soak      MINUTES=60: everything at once for so long, with what must hold looked at all the while
# make fuzz      TIME=3600: so many seconds of processor time of libFuzzer's inputs for what reads bytes of others
# make loom      the locks and stripes under a model checker: every order of their steps
# make asan      the pure layer's tests under the address sanitizer; takes a nightly toolchain
# make install   PG_CONFIG=/path/pg_config: release build into that server
# make package   PG_CONFIG=/path/pg_config OUT=directory: the same into a directory
#
# `bench` and the tests install what is missing (.ci/setup says what) and use a private copy of the server.

PG_MAJOR ?= 15
OUT ?= target/package
export PATH := $(HOME)/.cargo/bin:$(PATH)
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: bench bench-churn calibrate bench-instructions bench-reading bench-results bench-micro test test-all test-majors \
	all-majors audit regress memcheck test-server torture soak fuzz loom asan install package clean

# In recipes: pg_config is the private copy's, and pgrx has a configuration of its own beside it.
SETUP = pg_config=$$(.ci/setup $(PG_MAJOR) $(SETUP_FOR)); export PG_CONFIG=$$pg_config; \
	root=$${pg_config%/usr/lib/postgresql/*}; [ "$$root" = "$$pg_config" ] || export PGRX_HOME=$$root/pgrx
# Debian's servers must not run as root.
RUNAS = $(if $(filter 0,$(shell id -u)),--runas postgres --pgdata $$data/d)
# Runs the tests inside a server of a major.
INSIDE = data=$$(mktemp -d); trap 'rm -rf "$$data"' EXIT; chmod 777 "$$data"; cargo pgrx test $(RUNAS)
# In a loop over 16, 17 and 18: the server's pg_config, and for what is built for it, 17's target directory of its own,
# as that is built from ready bindings (.ci/rustc-docsrs).
SETUP_MAJOR = pg_config=$$(.ci/setup $$major tests); export PGRX_HOME=$${pg_config%/usr/lib/postgresql/*}/pgrx
BUILD_MAJOR = if [ $$major = 17 ]; then \
		export DOCS_RS=1 RUSTC_WRAPPER=$$PWD/.ci/rustc-docsrs CARGO_TARGET_DIR=target/docsrs; \
	fi
INSTALL_MAJOR = cargo pgrx install --pg-config "$$pg_config" --no-default-features --features pg$$major >/dev/null

bench:
	@$(SETUP); \
	cargo pgrx install --release --pg-config "$$pg_config"; \
	echo "== building the load driver (some minutes the first time)"; \
	cargo build --release --no-default-features --features load --bin pgss_rs_load; \
	cargo load -- --pg-config "$$pg_config" $(ARGS)

bench-churn:
	@$(MAKE) --no-print-directory bench ARGS="throughput --workload churn --clients 4 \
		--arms off,pgss_rs,pg_stat_statements --duration 120 $(ARGS)"

calibrate:
	@$(SETUP); \
	for clients in 1 2 16; do \
		cargo load -- pgbench --workload select-only --clients $$clients --pg-config "$$pg_config" $(ARGS); \
	done; \
	cargo load -- calibrate --pg-config "$$pg_config" $(ARGS)

bench-instructions:
	@$(SETUP); \
	cargo pgrx install --release --pg-config "$$pg_config" >/dev/null; \
	pg_test/bench/instructions.sh "$$pg_config"

bench-reading:
	@$(SETUP); \
	cargo pgrx install --release --pg-config "$$pg_config" >/dev/null; \
	cargo run --quiet --release --no-default-features --features load --example reading -- $(ARGS)

# Each file is one run; docs/performance.md says which table comes from which.
bench-results:
	@$(SETUP); \
	cargo pgrx install --release --pg-config "$$pg_config" >/dev/null; \
	mkdir -p docs/results/reading; \
	both=off,pgss_rs,pg_stat_statements; \
	measure() { name=$$1; shift; cargo load -- "$$@" --pg-config "$$pg_config" --json docs/results/$$name.json; }; \
	measure cost-now cost --workload now --clients 1 --duration 30 --arms off,pgss_rs,pgss_rs@0.01,pg_stat_statements; \
	measure now-2-clients throughput --workload now --clients 2 --duration 40 --arms $$both; \
	measure now-64-clients throughput --workload now --clients 64 --duration 40 --arms $$both; \
	measure churn throughput --workload churn --clients 4 --duration 160 --arms $$both; \
	measure sweep-now sweep --workload now --clients 2 --duration 120; \
	measure latency-select-only latency --workload select-only --rate-per-second 3000 --duration 120; \
	cargo run --quiet --release --no-default-features --features load --example reading -- docs/results/reading/reading.json; \
	pg_test/bench/instructions.sh "$$pg_config" | tee docs/results/instructions.md

bench-micro:
	@cargo bench --quiet --no-default-features --bench micro -- $(ARGS)

test: SETUP_FOR = tests
test:
	@$(SETUP); \
	echo "== format and lints"; \
	cargo fmt --check; \
	cargo clippy --quiet --all-targets --features pg$(PG_MAJOR),pg_test -- -D warnings; \
	cargo clippy --quiet --all-targets --no-default-features --features load -- -D warnings; \
	echo "== licences and sources"; \
	cargo deny --locked check $(WITHOUT_NETWORK); \
	echo "== the pure layer and the load driver"; \
	cargo pgrx install --release --pg-config "$$pg_config" >/dev/null; \
	cargo test --no-default-features --features load --lib --bins --example scaling; \
	echo "== on servers of their own"; \
	cargo test --no-default-features --features load --test cluster; \
	$(MAKE) --no-print-directory test-majors; \
	echo "== inside a server"; \
	$(INSIDE) pg$(PG_MAJOR); \
	cargo pgrx install --release --pg-config "$$pg_config" >/dev/null 2>&1 # measure no debug build afterwards

test-majors:
	@for major in 16 17 18; do \
		echo "== smoke test on PostgreSQL $$major"; \
		$(SETUP_MAJOR); \
		( $(BUILD_MAJOR); \
		  cargo clippy --quiet --no-default-features --features pg$$major -- -D warnings; \
		  $(INSTALL_MAJOR) ); \
		PG_CONFIG=$$pg_config cargo test --no-default-features --features load --test smoke; \
	done

test-all: test all-majors

# What `test` runs on 15 alone. 16 and 18 come without contrib, so the tests that compare with it are left out there, and
# the servers of all three cannot compile expressions: see `lacks` in pg_test/cluster/servers.rs, and usage.rs there.
all-majors:
	@for major in 16 17 18; do \
		$(SETUP_MAJOR); \
		( $(BUILD_MAJOR); \
		  cargo clippy --quiet --all-targets --no-default-features --features pg$$major,pg_test -- -D warnings; \
		  $(INSTALL_MAJOR) ); \
		echo "== on servers of their own, PostgreSQL $$major"; \
		PG_CONFIG=$$pg_config cargo test --no-default-features --features load --test cluster; \
		echo "== inside a server, PostgreSQL $$major"; \
		( $(BUILD_MAJOR); $(INSIDE) pg$$major --no-default-features --features pg$$major ); \
	done

# By deny.toml. Only `make audit` asks the advisory database, which is a repository of its own: `make test` must not fail
# because of what others publish, or where that cannot be reached.
WITHOUT_NETWORK = bans licenses sources
audit: SETUP_FOR = tests
audit:
	@$(SETUP); \
	cargo deny --locked check $(WITHOUT_NETWORK) advisories

# In recipes: as SETUP, but where PG_CONFIG is named, the library is built for that server and installed into it.
INSTALL_FOR_PG_CONFIG = if [ -n "$(PG_CONFIG)" ]; then \
		$(MAJOR_OF_PG_CONFIG); $(PGRX_FOR_PG_CONFIG); pg_config=$(PG_CONFIG); \
		CARGO_TARGET_DIR=target/for-pg-config cargo pgrx install --release --pg-config "$$pg_config" \
			--no-default-features --features pg$$major >/dev/null; \
	else \
		$(SETUP); cargo pgrx install --release --pg-config "$$pg_config" >/dev/null; \
	fi
SOURCE_IS_NAMED = [ -n "$(SOURCE)" ] || \
	{ echo "Say where PostgreSQL's source is: make $@ SOURCE=/path/postgresql-15.x" >&2; exit 2; }

regress:
	@$(SOURCE_IS_NAMED); $(INSTALL_FOR_PG_CONFIG); \
	pg_test/regress/run "$$pg_config" "$(SOURCE)"

memcheck:
	@$(SOURCE_IS_NAMED); $(INSTALL_FOR_PG_CONFIG); \
	pg_test/regress/memcheck "$$pg_config" "$(SOURCE)" $(TESTS)

test-server:
	@$(INSTALL_FOR_PG_CONFIG); \
	PG_CONFIG=$$pg_config cargo test --no-default-features --features load --test cluster

# What `test` does a few times, often. An error says what to set to repeat it.
TORTURE = PGSS_RS_PROGRAMS=500 PGSS_RS_ROUNDS=50 PGSS_RS_STATEMENTS=20000
torture:
	@$(SETUP); \
	cargo pgrx install --release --pg-config "$$pg_config" >/dev/null; \
	$(TORTURE) cargo test --no-default-features --features load --test cluster -- storms:: crashes:: memory_stays_flat

MINUTES ?= 60
soak:
	@$(SETUP); \
	cargo pgrx install --release --pg-config "$$pg_config" >/dev/null; \
	PGSS_RS_MINUTES=$(MINUTES) cargo test --no-default-features --features load --test cluster -- soak:: --nocapture

TIME ?= 600
fuzz:
	@nice pg_test/fuzz/run $(TIME)

# The tests named `models`. Link-time optimisation would take longer than they do.
loom:
	@RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom CARGO_PROFILE_RELEASE_LTO=off \
		cargo test --release --no-default-features --lib models

# The thread sanitizer would take a standard library built for it: with the one that comes it reports the fences in Arc.
asan:
	@RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan \
		cargo +nightly test --no-default-features --lib --target x86_64-unknown-linux-gnu

# In recipes: PG_CONFIG is the pg_config of a server that this can be built for; its major.
MAJOR_OF_PG_CONFIG = fail() { echo "make $@: $$1" >&2; exit 2; }; \
	given="$(PG_CONFIG)"; \
	[ -n "$$given" ] || fail "say which server it is for: make $@ PG_CONFIG=/path/pg_config"; \
	command -v "$$given" >/dev/null || fail "PG_CONFIG=$$given: there is no such program"; \
	version=$$("$$given" --version 2>/dev/null </dev/null) || version=""; \
	[[ "$$version" =~ ^PostgreSQL\ ([0-9]+) ]] || fail "PG_CONFIG=$$given is no pg_config: with --version it says \"$$version\""; \
	major=$${BASH_REMATCH[1]}; \
	[ "$$major" -ge 15 ] && [ "$$major" -le 18 ] || fail "PG_CONFIG=$$given is of $$version, and pgss_rs is for 15 to 18"; \
	headers=$$("$$given" --includedir-server); \
	[ -e "$$headers/postgres.h" ] || \
		fail "PG_CONFIG=$$given: the server's headers are not in $$headers; Debian has them in postgresql-server-dev-$$major"; \
	cargo pgrx --version 2>/dev/null | grep -qF 0.18.1 || fail "install cargo-pgrx first: cargo install --locked cargo-pgrx@0.18.1"

# pgrx wants to know each server from a configuration of its own, apart from the user's.
PGRX_FOR_PG_CONFIG = mkdir -p target/pgrx-$$major; export PGRX_HOME=$$PWD/target/pgrx-$$major; \
	printf '[configs]\npg%s = "%s"\n' "$$major" "$(PG_CONFIG)" > $$PGRX_HOME/config.toml

install:
	@$(MAJOR_OF_PG_CONFIG); \
	dir=$$("$(PG_CONFIG)" --pkglibdir); [ -w "$$dir" ] && sudo="" || sudo=--sudo; \
	$(PGRX_FOR_PG_CONFIG); \
	cargo pgrx install --release --pg-config "$(PG_CONFIG)" --no-default-features --features pg$$major $$sudo; \
	echo "Now add pgss_rs to shared_preload_libraries, restart the server, and CREATE EXTENSION pgss_rs."

package:
	@$(MAJOR_OF_PG_CONFIG); \
	$(PGRX_FOR_PG_CONFIG); \
	cargo pgrx package --pg-config "$(PG_CONFIG)" --no-default-features --features pg$$major --out-dir "$(OUT)"

clean:
	cargo clean
