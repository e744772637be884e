# Every target does its own set-up: a fresh clone needs only Python 3.11+, make and git.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
PARITY := .venv/.parity
CLUSTER := .venv/.cluster
DOCS := .venv/.docs
# without torchvision, which they ask for and do not need here: only the build that belongs to that of torch would work
LAPLACE := laplace-torch asdfghjkl backpack-for-pytorch curvlinops-for-pytorch einconv einops opt_einsum unfoldNd
export MPLBACKEND := Agg
# the networks of the tests are small, and both cores run tests; any other number works as well
export OMP_NUM_THREADS ?= 1

# The kernels of two other processors: torch, oneDNN, MKL, OpenBLAS, NumPy and the C library each choose their own.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell
SSE4 := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem \
  NPY_DISABLE_CPU_FEATURES=X86_V3 GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4
NUMBERS := tests $(patsubst %,--ignore-glob='tests/%',benchmarks commands distributed experiments faults plots reporting \
  support test_docs.py test_init.py)

.PHONY: help install demo test test-slow test-faults test-cpus test-pythons test-lowest sbom lock test-parity test-distributed test-browser lint bench bench-cpus docs reproduce clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

install: $(READY) ## create .venv with the pinned versions

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## auto beside simpler methods and the oracle on two data sets: tables and reports, under a minute
	$(BIN)/selfcal demo --out demo --force

lint: $(READY) ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## everything that must hold: lint, doctests, tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(READY) ## what make test does briefly, at full size: the pages, the default method, every kind of network
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-faults: $(READY) ## the long list of injected faults: a hundred kills, and what they leave behind
	$(BIN)/python -m pytest -m slow_faults tests
	$(BIN)/python -m pytest --hypothesis-profile thorough tests/faults/test_fuzzed_*.py

test-cpus: $(READY) ## the tests of numbers, with the kernels of two other processors
	$(AVX2) $(BIN)/python -m pytest -n 2 --dist worksteal $(NUMBERS)
	$(SSE4) $(BIN)/python -m pytest -n 2 --dist worksteal $(NUMBERS)

test-pythons: ## the tests on Python 3.12 and 3.13, where they are installed
	.ci/test-pythons 3.12 3.13

test-lowest: ## the wheel in empty environments: with the newest dependencies, and with the lowest that are allowed
	PYTHON=$(PYTHON) .ci/test-lowest

sbom: ## what an installation of the wheel consists of, as CycloneDX JSON; after make test-lowest
	.venv-newest/bin/python .ci/sbom selfcal dist/sbom.json

lock: ## constraints-hashes.txt: the pinned dependencies of the package with the hashes of their files
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	.ci/lock .venv-lock/bin/pip-compile constraints-hashes.txt

$(PARITY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[parity]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps $(LAPLACE)
	@touch $@

test-parity: $(PARITY) ## our numbers against heavy references: netcal, relplot, uncertainty-calibration, betacal, probmetrics, mapie, laplace-torch, onnxruntime, and pytabkit if it is installed; and the tools of docs/guides/integrations.md
	$(BIN)/python -m pytest tests/parity/heavy tests/estimators/test_frames.py
	$(BIN)/python -m pytest tests/test_docs.py -k integrations

$(CLUSTER): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster,search]'
	@touch $@

test-distributed: $(CLUSTER) ## the same answer from several workers, processes and machines
	$(BIN)/python -m pytest tests/distributed

test-browser: $(READY) ## the report page and the site (make docs) in a real Chromium; skipped, with the reason, where there is none
	$(BIN)/python -m pytest tests/browser

bench: $(PARITY) ## side-by-side timings, as ratios; into benchmarks/RESULTS.md (about an hour)
	$(BIN)/python -m benchmarks.hypergradient --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.hypergradient_quality --jobs 2 --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.metrics --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.convolution --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.layout --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.checkpoint --results benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.tables --results benchmarks/RESULTS.md
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.trees --results benchmarks/RESULTS.md
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.uncertainty_cost --results benchmarks/RESULTS.md
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.coverage --results benchmarks/RESULTS.md

bench-cpus: $(READY) ## how far models differ that are fitted with the kernels of other processors, or two threads
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.cpus fit runs/cpus/native.npz
	OMP_NUM_THREADS=1 $(AVX2) $(BIN)/python -m benchmarks.cpus fit runs/cpus/AVX2.npz
	OMP_NUM_THREADS=1 $(SSE4) $(BIN)/python -m benchmarks.cpus fit runs/cpus/SSE4.npz
	OMP_NUM_THREADS=2 $(BIN)/python -m benchmarks.cpus fit "runs/cpus/two threads.npz"
	$(BIN)/python -m benchmarks.cpus compare runs/cpus

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(DOCS) ## the site, in docs/_build; warnings, such as of a broken link, are errors
	$(BIN)/python -m sphinx -q -E -W --keep-going docs docs/_build/html

reproduce: $(READY) ## run the full reproduction and refresh the tables and figures of the docs
	$(BIN)/selfcal reproduce bo4sc --seeds 10 --out runs/bo4sc
	$(BIN)/python -m docs.refresh runs/bo4sc

clean: ## remove what the other targets made
	rm -rf .venv .venv-* demo runs docs/_build docs/reference/api docs/reference/commands.rst .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
