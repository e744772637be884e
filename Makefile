# Every target does its own set-up: a fresh clone needs only Python 3.11+, make and git.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
PARITY := .venv/.parity
export MPLBACKEND := Agg

.PHONY: help install demo test test-faults test-parity test-browser lint bench docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

install: $(READY) ## create .venv with the pinned versions

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## train four methods on Blobs 1.7, print the table, write the report
	$(BIN)/selfcal demo --out demo

lint: $(READY) ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## everything that must hold: lint, doctests, tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-faults: $(READY) ## the long list of injected faults: a hundred kills, and what they leave behind
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow_faults tests

$(PARITY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[parity]'
	@touch $@

test-parity: $(PARITY) ## our numbers against heavy references: netcal, relplot, uncertainty-calibration, betacal, onnxruntime
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/parity/heavy

test-browser: $(READY) ## the report page in a real Chromium; skipped, with the reason, where there is none
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/browser

bench: $(PARITY) ## side-by-side timings, as ratios; into benchmarks/RESULTS.md (about an hour)
	$(BIN)/python -m benchmarks.hypergradient --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.hypergradient_quality --jobs 2 --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.metrics --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.convolution --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.checkpoint --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.tables --results benchmarks/RESULTS.md

docs: $(READY) ## run the full reproduction and refresh the tables and figures of the docs
	$(BIN)/selfcal reproduce bo4sc --seeds 10 --out runs/bo4sc
	$(BIN)/python -m docs.refresh runs/bo4sc

clean: ## remove what the other targets made
	rm -rf .venv demo runs .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
