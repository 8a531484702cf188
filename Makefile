# You need make and Python 3.11 or newer. Everything else is installed into .venv, and into .jdk if
# there's no Java. To use another Python: make test PYTHON=/path/to/python3
.DEFAULT_GOAL := help
.PHONY: help setup test quick coverage test-nightly test-long test-matrix test-oldest test-sail test-lakes test-Delta test-Iceberg conformance faults soak check lint types contracts suite format docs app demo bench release-check clean

CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14 python
ifndef PYTHON
PYTHON := $(shell for name in $(CANDIDATES); do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; \
	done)
endif

BIN := .venv/bin
# Spark finds Java and Python through the environment. A SPARK_HOME would start another Spark.
# With `exec`, a signal to make reaches Python, not a shell in between.
RUN = JAVA_HOME="$$(cat .venv/java-home)" exec $(BIN)/python
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export SPARK_LOCAL_IP := 127.0.0.1
unexport SPARK_HOME
# Without bytecode, each process of pytest rewrites all tests, and each Python worker compiles all.
unexport PYTHONDONTWRITEBYTECODE
unexport PYSPARK_DRIVER_PYTHON

help:
	@echo "make test           set up, check, and run all tests but the nightly, the long and Sail's"
	@echo "make quick          run the tests of specs, engine and most add-ons, in less than a minute"
	@echo "make coverage       run every test without Spark, and show which lines and branches they reach"
	@echo "make test-nightly   like make test, with the nightly tests and Sail's"
	@echo "make test-long      like make test, with all tests and ten times the examples"
	@echo "make test-matrix    run a part in every cell: Sparks, Pythons, libraries, ways to run Spark"
	@echo "make test-oldest    run a few in the cell with the lowest versions"
	@echo "make test-sail      run batches on Sail, an engine without Java"
	@echo "make test-lakes     run a few of Delta and Iceberg, each on its newest Spark"
	@echo "make suite          run the tests of make test alone; with PART=jobs, queries or rest, those on Spark"
	@echo "make conformance    run the cases of other engines, on the driver and on Spark"
	@echo "make faults         kill jobs, 100 times or KILLS=1000 times, and look for every event"
	@echo "make soak           watch memory and checkpoint of a job for SOAK=3600 s; records it for docs"
	@echo "make check          run the linter, the type checker and the import contracts"
	@echo "make lint           run the linter and the spell check alone, and read the fragments of the changelog"
	@echo "make format         format the code, and fix what the linter can fix"
	@echo "make docs           build the site of the documentation in site/, and refuse broken links"
	@echo "make app            run a sample app to its report: APP=shop, web, trips, logins or devices"
	@echo "make demo           find sessions in real flights on a Spark stream"
	@echo "make bench          measure every way to the same rows, for figures of README and docs"
	@echo "make release-check  build a release, read it, install it, and follow README and tutorial"
	@echo "make clean          remove what set-up and the tools have made"

setup:
	@if [ -z "$(PYTHON)" ]; then \
		echo "sessionkit needs Python 3.11 or newer; none of these is one: $(CANDIDATES)" >&2; \
		echo "" >&2; \
		echo "Hint: install Python, or pass yours: make test PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
	@"$(PYTHON)" scripts/setup_env.py

lint: setup
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/codespell
	@said=$$($(BIN)/towncrier build --draft 2>&1) || { echo "$$said" >&2; exit 1; }

types: setup
	$(BIN)/python -m mypy

contracts: setup
	$(BIN)/lint-imports --no-cache --no-logo

check: lint types contracts

format: setup
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format

# Two or more processes share the files of tests; each starts a Spark of its own, of some 2 GB.
PARALLEL = -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# A time zone with daylight saving, so that code that confuses local time with UTC fails.
test quick coverage test-nightly test-long suite conformance faults soak: export TZ := America/New_York

# Each takes as long as a thousand others, or starts a server or Spark.
NOT_QUICK := tests/properties tests/examples tests/project tests/as_users tests/differential \
	tests/spark tests/faults tests/testing tests/addons/report tests/addons/postgres \
	tests/addons/test_delay.py tests/conformance tests/engine/shell/test_altered_state.py

# The type checker fills the moments in which the tests wait for Spark.
test test-nightly test-long: lint
	@$(MAKE) --no-print-directory --jobs=3 types contracts suite

# With PART=jobs, the tests on Spark of a part in tests/support/parts.py.
IN_PART = $(if $(PART),--part $(PART) -m "spark and not (long or nightly)")

suite: setup
	$(RUN) -m pytest $(PARALLEL) $(SELECTED) $(IN_PART)

quick: export HYPOTHESIS_PROFILE := quick
quick: setup
	$(RUN) -m pytest $(PARALLEL) -m "not spark and not long" $(addprefix --ignore=,$(NOT_QUICK))

coverage: setup
	$(RUN) -m pytest $(PARALLEL) -m "not spark and not long" --cov

# `make test-sail` runs those of Sail, where there is no Java.
test: export SELECTED := --ignore=tests/sail

test-nightly: export SELECTED := -m "not long"

test-long: export HYPOTHESIS_PROFILE := ci
test-long: export SELECTED := -m "long or not long"

test-matrix: setup
	@$(RUN) scripts/matrix.py $(CELLS)

test-oldest: setup
	@$(RUN) scripts/matrix.py --dry --quick 3.5.0

test-sail: setup
	@$(RUN) scripts/matrix.py --dry --quick sail-py3.11

test-lakes test-Delta test-Iceberg: export KILLS := 1
test-lakes: setup
	@$(RUN) scripts/matrix.py --dry --lakes $(CELLS)

test-Delta test-Iceberg: setup
	@$(RUN) scripts/matrix.py --dry --lakes $(subst test-,,$@)

conformance: setup
	$(RUN) -m pytest $(PARALLEL) --dist load tests/conformance -m "long or not long"

KILLS := 100
faults: setup
	@$(RUN) -m tests.support.faults --kills $(KILLS) $(if $(SEED),--seed $(SEED))

SOAK := 3600
soak: setup
	@$(RUN) -m benchmarks.soak --seconds $(SOAK)

# Sphinx keeps what it has read, so the second build takes seconds.
docs: setup
	$(BIN)/python -m scripts.fill_pages
	$(BIN)/python -m scripts.draw_pictures
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --doctree-dir .sphinx docs site
	@echo "open site/index.html"

APP := shop
app: setup
	@$(RUN) -m examples.$(APP) $(ARGS)

demo: setup
	@$(RUN) -m examples.trips.demo

bench: setup
	@$(RUN) -m benchmarks $(ARGS)
	@$(RUN) -m scripts.fill_pages
	@$(RUN) -m scripts.draw_pictures

release-check: setup
	@$(RUN) scripts/release_check.py $(if $(TAG),--tag "$(TAG)")

clean:
	rm -rf .venv .jdk dist .matrix .sphinx site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov
