# Two commands: `make run` (a live fleet and its page), `make test` (everything CI runs).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-run
TEST_READY := $(VENV)/.ready-test

# What a run in virtual time spends its time in: `make fast` compiles it (needs a C compiler), half the time for the same
# figures to the last digit. `make slow` removes what it made; after a change of the source do either.
COMPILED := fleetsim/engine.py fleetsim/timing.py fleetsim/prefix_cache.py fleetsim/jitter.py fleetsim/exposition.py \
  $(addprefix fleetsim/virtual/,engine.py engine_decode.py engine_run.py engine_schedule.py simulation.py deadlines.py server.py)

.PHONY: run test lint docs fast slow clean

run: $(RUN_READY)
	$(BIN)/inferostat run

test: $(TEST_READY)
	.ci/components
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest

lint: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(TEST_READY)
	$(BIN)/python -m collector.catalog.document docs/signals.md
	$(BIN)/python -m dashboards.build
	$(BIN)/python -m fleetsim.library_table docs/scenarios.md
	$(BIN)/python -m fleetsim.policies.table docs/policies.md
	$(BIN)/python -m fleetsim.traffic.document docs/traffic.md

fast: $(TEST_READY)
	$(BIN)/mypyc --config-file= $(COMPILED)
	rm -rf build

slow:
	find . -name '*.so' -not -path './$(VENV)/*' -delete

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "expected Python 3.11 or newer, found $$($(PYTHON) --version); set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then apt-get update -q >/dev/null && apt-get install -y -q python3-venv >/dev/null; \
	    else echo "expected Python's venv module; install python3-venv" >&2; exit 1; fi; }
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[fleet]'
	@touch $@

$(TEST_READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[fleet,dev]'
	@touch $@ $(RUN_READY)

clean: slow
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
