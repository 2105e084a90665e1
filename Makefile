# The project's tasks; `make help` lists them.

# A Python of the supported versions that can make virtual environments; `make setup PYTHON=…` names another.
SUPPORTED = import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(SUPPORTED)' 2>/dev/null && { echo $$python; break; }; done),$(error \
	dtsweep needs Python 3.11 to 3.13 with venv (Debian, Ubuntu: apt install python3-venv; next to an older python3: apt install python3.11-venv)))

# Tests on real data look in a folder beside the clone, and are skipped, saying so, where there is none.
DATA := $(patsubst %/step_series,%,$(abspath $(firstword $(wildcard ../*/data/step_series))))
ifneq ($(DATA),)
export DTSWEEP_TEST_DATA ?= $(DATA)
endif

# The few tests on Ray that `make test` runs; each command there is one that a user types.
ON_RAY = tests/test_on_ray.py

# Files of one third of the tests that `make test` leaves out; without THIRD, all of them.
RUN_THIRD = $(if $(THIRD),--third $(THIRD))

# Python of the targets for GPUs; another one brings its own torch, built for the driver's CUDA, and the other packages.
PYTHON_GPU ?= .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup sweep check test test-rest test-all test-gpu gpu-checklist gpu-checklist-node format docs notebook \
	bench clean
.NOTPARALLEL: # not two installers in one .venv, and no tests next to each other but those that pytest puts there

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup: .venv/dev.stamp ## Make .venv with what the checks and tests need, at the tested versions

.venv/run.stamp: EXTRA =
.venv/dev.stamp: EXTRA = [dev]
.venv/notebook.stamp: EXTRA = [notebook]
.venv/%.stamp: pyproject.toml constraints.txt
	@echo 'Setting up .venv: a few minutes the first time' >&2
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.$(EXTRA)' -c constraints.txt
	@touch .venv/run.stamp $@

sweep: .venv/run.stamp ## Run the first sweep (sweeps/batchsize.py) and print its frontier; installs only what that needs
	.venv/bin/python -m dtsweep sweeps/batchsize.py

check: setup ## Format, lint and types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

test: setup ## Run the tests to run before each commit: all quick ones, and a few on Ray (12 minutes)
	.venv/bin/python -m pytest -n 2 --dist loadfile -m 'not ray and not gpu and not slow' --durations=10
	.venv/bin/python -m pytest $(ON_RAY) --durations=10

test-rest: setup ## Run the tests that `make test` leaves out, but those that need a GPU; THIRD=0, 1 or 2 runs a part of them
	.venv/bin/python -m pytest -n 2 --dist loadfile -m 'slow and not ray and not gpu' --durations=10 $(RUN_THIRD)
	.venv/bin/python -m pytest -m ray --ignore $(ON_RAY) --durations=10 $(RUN_THIRD)

test-all: test test-rest ## Run all tests but those that need a GPU (over an hour)

# Packages of another Python are its own affair.
ifeq ($(PYTHON_GPU),.venv/bin/python)
test-gpu gpu-checklist gpu-checklist-node: setup
endif

test-gpu: ## Run the tests that need an NVIDIA GPU, and fail where there is none; PYTHON_GPU=… names a Python with its own torch
	DTSWEEP_NEEDS_GPU=1 $(PYTHON_GPU) -m pytest tests/gpu

gpu-checklist: ## Compare a GPU with what is expected of it, line by line, without Ray (ten minutes); PYTHON_GPU=… as above
	$(PYTHON_GPU) -m benchmarks.gpu_checklist

gpu-checklist-node: ## The checklist of a node of several GPUs, with Ray
	$(PYTHON_GPU) -m benchmarks.node_checklist

format: setup ## Format the code and mend what the linter can
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

docs: setup ## Write what docs/ takes from the code: columns.md, and the tables in sweep-files.md
	.venv/bin/python docs/tables.py

notebook: .venv/notebook.stamp ## Start JupyterLab on notebooks/
	.venv/bin/python -m jupyterlab notebooks

bench: setup ## Measure overhead, fidelity of the timed loop, the stopping rule, the exchange, and the A/A test (benchmarks/)
	.venv/bin/python -m benchmarks.overhead
	.venv/bin/python -m benchmarks.fidelity
	.venv/bin/python -m benchmarks.stopping
	.venv/bin/python -m benchmarks.exchange
	.venv/bin/python -m benchmarks.same_point

clean: ## Remove .venv and caches; results/ stays
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
