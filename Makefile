# `make test` and `make demo` need nothing but make and Python 3.11 or newer: the rest is set up here,
# in .venv (and .jdk, where Java has to be fetched). Another Python: make test PYTHON=/path/to/python3
.DEFAULT_GOAL := help
.PHONY: help setup test test-long conformance check lint types contracts format demo bench clean

CANDIDATES := python3 python3.13 python3.12 python3.11 python3.14 python
ifndef PYTHON
PYTHON := $(shell for name in $(CANDIDATES); do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; \
	done)
endif

BIN := .venv/bin
# Spark finds its Java and its Python through the environment; a SPARK_HOME would start another Spark.
RUN = JAVA_HOME="$$(cat .venv/java-home)" $(BIN)/python
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export SPARK_LOCAL_IP := 127.0.0.1
unexport SPARK_HOME
unexport PYSPARK_DRIVER_PYTHON

help:
	@echo "make test       set up, check, and run every test but the long ones"
	@echo "make test-long  the same with the long tests, and more examples for each property"
	@echo "make conformance  set up, and run the cases of other engines, on the driver and on Spark"
	@echo "make demo       set up, and find sessions in real flights on a Spark stream"
	@echo "make bench      set up, and measure side by side with Spark's own operators"
	@echo "make check      lint, types and import contracts, without the tests"
	@echo "make lint       ruff alone; make format lets ruff mend what it can"
	@echo "make clean      remove what set-up and the tools have made"

setup:
	@if [ -z "$(PYTHON)" ]; then \
		echo "sessionkit needs Python 3.11 or newer; none of these is one: $(CANDIDATES)" >&2; \
		echo "" >&2; \
		echo "Hint: install Python, or name yours: make test PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
	@"$(PYTHON)" scripts/setup_env.py

lint: setup
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check

types: setup
	$(BIN)/python -m mypy

contracts: setup
	$(BIN)/lint-imports --no-cache --no-logo

check: lint types contracts

format: setup
	$(BIN)/python -m ruff check --fix
	$(BIN)/python -m ruff format

# A zone that is not UTC and has a summer time: what confuses local time with UTC fails here.
test test-long conformance: export TZ := America/New_York

test: check
	$(RUN) -m pytest --cov

test-long: export HYPOTHESIS_PROFILE := ci
test-long: check
	$(RUN) -m pytest --cov -m "long or not long"

conformance: setup
	$(RUN) -m pytest tests/conformance -m "long or not long"

demo: setup
	@$(RUN) -m examples.flights

bench: setup
	@$(RUN) -m benchmarks

clean:
	rm -rf .venv .jdk .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov
