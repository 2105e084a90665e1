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

# What kills, freezes and takes away real processes and nodes: slow, and of interest where those are handled.
FAULTS = $(patsubst %,tests/driver/test_%.py,autoscaled_sweeps autoscaler cluster_gone driver_killed hosts kills struck)
FAULTS_0 = $(patsubst %,tests/driver/test_%.py,autoscaled_sweeps hosts)
FAULTS_1 = $(patsubst %,tests/driver/test_%.py,autoscaler struck)
FAULTS_2 = $(filter-out $(FAULTS_0) $(FAULTS_1),$(FAULTS))
FAULTS_RUN = $(if $(THIRD),$(FAULTS_$(THIRD)),$(FAULTS))

# Thirds of the other tests on Ray, of about equal time with those of the faults; the last one has all that is new.
RAY_0 = $(patsubst %,tests/driver/test_%.py,cluster connect nested share_nodes visit written_cluster)
RAY_1 = $(patsubst %,tests/driver/test_%.py,campaign_storage faults start_is_cut)
RAY_2 = $(addprefix --ignore=,$(RAY_0) $(RAY_1))
RAY_RUN = $(if $(THIRD),$(RAY_$(THIRD))) $(addprefix --ignore=,$(FAULTS))

# Python of the targets for GPUs; another one brings its own torch, built for the driver's CUDA, and the other packages.
PYTHON_GPU ?= .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup sweep test test-fast test-ray test-faults test-gpu gpu-checklist gpu-checklist-node check lint format \
	docs notebook bench clean
.NOTPARALLEL: # not two installers in one .venv, and no tests beside each other but those that test-fast puts there

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

check: lint test-fast ## Format, lint, types and the fast tests

lint: setup ## Format, lint and types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

test: test-fast test-ray ## Run all tests but those of test-faults and those that need a GPU

test-fast: setup ## Run the tests that start no Ray, on two cores
	.venv/bin/python -m pytest -n 2 --dist loadfile -m 'not ray and not gpu' --durations=10

test-ray: setup ## Run the tests that start a private Ray, one after the other; THIRD=0, 1 or 2 runs a part of them
	.venv/bin/python -m pytest -m ray --durations=10 $(RAY_RUN)

test-faults: setup ## Run the tests that kill, freeze and take away processes and nodes of real Rays; THIRD=0, 1 or 2 runs a part of them
	.venv/bin/python -m pytest -m ray --durations=10 $(FAULTS_RUN)

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
