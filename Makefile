# `make help` lists the targets. Everything runs in .venv, which is made and kept up to date as needed.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

##@ Set-up and checks

.PHONY: help setup lint format test bench data clean

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' \
	$(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the pinned packages (other targets do this by themselves)

# The stamp is written last, so an interrupted set-up is taken up again. Some machines join a CPU build of torch with
# torchvision's plain wheel, which then cannot be imported: only there the shim goes into the environment.
$(READY): pyproject.toml requirements.lock fedclust/_torchvision.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedclust needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -r requirements.lock
	$(BIN)/python -m pip install --no-deps --no-build-isolation -e .
	@site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	if ! $(BIN)/python -c 'import torchvision' 2> /dev/null; then \
		cp fedclust/_torchvision.py "$$site/torchvision_schemas.py"; \
		echo 'import torchvision_schemas' > "$$site/torchvision_schemas.pth"; \
		$(BIN)/python -c 'import torchvision'; \
	fi
	@touch $@

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(READY) ## let ruff lay out the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: $(READY) ## all tests, two at a time
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

bench: $(READY) ## speed, as ratios to the plain PyTorch loop
	$(BIN)/python -m pytest tests/benchmarks -s

data: $(READY) ## fetch and check the real data sets
	$(BIN)/fedclust data

clean: ## remove what is made, but not .venv and not the data
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

##@ Papers
