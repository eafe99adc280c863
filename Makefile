# Every target needs GNU make and Python 3.10 or later with its venv module; the rest is fetched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := mapping facade spark tools demo benchmarks tests

# Some environments forbid Python to keep what it compiles. Tests start hundreds of processes, which would take seconds each.
unexport PYTHONDONTWRITEBYTECODE

# A file half made by an interrupted or failed recipe must not look finished.
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all test-installed test-matrix test-clients test-fast test-unit campaign check lint types mypy pyright layers measures lua generated \
	english commits format generate bench site docs constraints release clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | \
		while IFS="$$(printf '\t')" read -r target what; do printf '%-12s %s\n' "$$target" "$$what"; done

venv: $(READY) ## make .venv with everything at its pinned version

$(READY): pyproject.toml constraints.txt tools/install.sh
	$(PYTHON) -m venv $(VENV)
	tools/install.sh $(VENV) dev
	touch $@

# ARGS goes to the program: make demo ARGS='--limit 1000'. LIMIT=1000 is short for that.
# exec leaves no shell between make and Python, so that Ctrl-C reaches the program alone.
demo: $(READY) ## run the demo (LIMIT=n flights, ARGS=...)
	exec $(BIN)/python -m demo $(if $(LIMIT),--limit $(LIMIT)) $(ARGS)

# More processes than cores: most tests wait, for a clock or a silence. tests/scheduling.py hands out what they run.
WORKERS ?= 6
PYTEST = $(BIN)/python -m pytest --numprocesses=$(WORKERS)

MARKS ?= not extended

test: $(READY) ## run all tests that a change must pass (ARGS=... for pytest)
	$(PYTEST) -m '($(MARKS)) and not clients' $(ARGS)

test-all: $(READY) ## run those as well that show again what others show (ARGS=...)
	KAFKABUS_THOROUGH=1 $(PYTEST) -m 'not clients' $(ARGS)
	$(MAKE) --no-print-directory test-matrix
	tools/bare_machine.sh trixie

# What depends on the version of Redis, on the server that comes with the install: machines of developers and of CI may have another
# one, which would run instead.
INSTALLED = tests/integration/facade/test_refusing_redis.py tests/integration/embedded/test_redis_data.py \
	tests/integration/clusters/test_cluster.py::test_a_server_that_is_no_cluster_is_refused \
	tests/integration/embedded/test_runtime.py::test_it_does_without_java_and_redis_of_the_machine

test-installed: $(READY) ## run what depends on the version of Redis, on the server that comes with the install
	$(BIN)/python -m pytest --numprocesses=2 --redis-version valkey-9 -m 'not extended' $(INSTALLED) $(ARGS)

# The servers of a version are downloaded once, into the user's cache folder.
test-matrix: $(READY) ## run the contract's core on versions of Kafka and Redis (KAFKA=3.9, REDIS=valkey-8)
	exec $(BIN)/python -m tests.matrix $(if $(KAFKA),--kafka=$(KAFKA)) $(if $(REDIS),--redis=$(REDIS)) \
		--numprocesses=$(WORKERS) $(ARGS)

# Needs Node.js, Go, Maven and Java 17; the SDKs come from their registries, into the user's cache folder.
test-clients: $(READY) ## check the gateway with Azure's SDKs in other languages (ARGS=... for pytest)
	$(BIN)/python -m tests.clients.programs
	$(BIN)/python -m pytest tests/clients -m clients $(ARGS)

# What starts no server does little but wait.
test-fast: WORKERS = 14
test-fast: $(READY) ## run what starts no server: rules, and the contract in memory (ARGS=...)
	$(PYTEST) -m 'not servers' tests/unit tests/contract $(ARGS)

test-unit: $(READY) ## run the tests of rules alone (ARGS=...)
	$(BIN)/python -m pytest tests/unit $(ARGS)

campaign: $(READY) ## kill parties, compare ledgers and fuzz for a time (MINUTES=n, SEED=n)
	exec $(BIN)/python -m tests.campaign $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

# The checks keep what they found in caches, and each waits for a core of its own.
check: $(READY) ## run every static check
	@$(MAKE) --no-print-directory --jobs=$(shell nproc) --output-sync=target mypy pyright lint layers measures lua generated english commits

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: mypy pyright ## mypy and pyright, both strict

mypy: $(READY)
	$(BIN)/mypy

pyright: $(READY)
	$(BIN)/pyright

layers: $(READY) ## import-linter: who may import whom
	$(BIN)/lint-imports

measures: $(READY) ## the measures of the code: circles, attributes, lengths, names
	$(BIN)/python -m tools.measure_code --check

lua: $(READY) ## the ledger's Lua scripts
	$(BIN)/python -m tools.lint_lua

generated: $(READY) ## the generated files are what the generators make
	$(BIN)/python -m tools.generate_blocking --check
	$(BIN)/python -m tools.generate_lua --check

english: $(READY) ## the rules of English in texts, docstrings and comments, and names of code in the documentation
	$(BIN)/python -m tools.check_english
	$(BIN)/python -m tools.check_names

commits: $(READY) ## the subjects of commits
	$(BIN)/python -m tools.check_commits

generate: $(READY) ## write the blocking twins, and the layout for Lua
	$(BIN)/python -m tools.generate_blocking
	$(BIN)/python -m tools.generate_lua

format: $(READY) ## format everything and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## run the benchmarks (ARGS=...)
	exec $(BIN)/python -m benchmarks $(ARGS)

# Material prints a notice about its successor at each start.
site: $(READY) ## build the documentation into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs: $(READY) ## build the documentation, and serve it at http://127.0.0.1:8000
	NO_MKDOCS_2_WARNING=1 exec $(BIN)/mkdocs serve

# Resolved for the oldest Python, whose choice holds for the newer ones; constraints.in has the exceptions. It does not ask for a
# ready .venv, because the pins that this makes anew may be what keeps it from being one.
constraints: ## pin anew what pyproject.toml and constraints.in allow
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m uv pip compile --quiet --upgrade --universal --fork-strategy fewest --no-python-downloads \
		--python-version 3.10 --no-header --no-annotate --no-emit-index-url --extra dev \
		--constraint constraints.in --output-file constraints.txt pyproject.toml

release: $(READY) ## build sdist and wheel into dist/, check them, and try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m tools.release dist

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(SOURCES) -type d -name __pycache__ -prune -exec rm -rf {} +
