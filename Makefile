# `make help` lists the targets. Everything runs in .venv, which is made as needed.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled

##@ Set-up and checks

.PHONY: help setup lint format test cluster external bench bench-peers data faults clean

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nPapers, from papers/:\n'
	@for file in papers/*.toml; do key=$${file#papers/}; \
		printf '  %-16s %s\n' "$${key%.toml}" "$$(sed -n 's/^title = "\(.*\)"/\1/p' $$file | head -1)"; \
	done

setup: $(READY) ## make .venv with the pinned packages (other targets do this by themselves)

# The stamp is written last: an interrupted set-up starts again. Bytecode is made on all cores, not
# by pip; some files are for other Pythons.
$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'fedclust needs Python 3.11 or newer: make PYTHON=python3.11'; exit 2; }
	@echo 'Making $(VENV): packages are fetched and installed, a minute or two.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-compile -r requirements.lock
	$(BIN)/python -m pip install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib fedclust > /dev/null || true
	@touch $@

# Once: otherwise every process compiles what it needs, often several the same at a time.
$(COMPILED): $(READY) $(wildcard fedclust/fast/*.py)
	@echo 'Compiling what trains and clusters, once: less than a minute.'
	OMP_NUM_THREADS=1 $(BIN)/fedclust compile
	@touch $@

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(READY) ## let ruff lay out the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: $(COMPILED) ## all tests, two at a time
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

cluster: $(COMPILED) ## a sweep on a Ray cluster of two nodes, one of them killed (installs ray)
	$(BIN)/python -m pip install --quiet --no-build-isolation -c requirements.lock -e '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster tests/experiments/test_cluster.py

external: $(COMPILED) ## published numbers of FedAvg, IFCA and CFL: a quarter of an hour
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "external or not external" tests/external

bench: $(COMPILED) ## speed, as ratios to the plain PyTorch loop
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -o addopts= \
		-o python_files='bench_*.py' tests/benchmarks -s

bench-peers: $(READY) ## against other simulators: an hour (ARGS="--help")
	$(BIN)/python -m tests.benchmarks.run $(ARGS)

data: $(READY) ## fetch and check the real data sets
	$(BIN)/fedclust data

faults: $(COMPILED) ## damage everything, kill the replication KILLS=20 times: same numbers
	CAMPAIGN=1 KILLS=$(or $(KILLS),20) KEYS=$(or $(KEYS),all) $(BIN)/python -m pytest tests/faults

clean: ## remove what is made, but not .venv and not the data
	rm -rf $(COMPILED) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

##@ Papers (make <key> runs one; ARGS="-p epsilon 5" changes a value)

# No file is a target here: times of files say nothing about results. The cache knows every trial by
# its content and says why it runs one.
PAPERS := $(filter-out compare,$(sort $(basename $(notdir $(wildcard replications/*.py)))))
TIER ?= quick
ifeq ($(TIER),paper)  # runs of hours leave their records with the figures
export FEDCLUST_SHIPPED ?= write
endif
OPTIONS = --tier $(TIER) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JOBS),--jobs $(JOBS)) \
	$(if $(BACKEND),--backend $(BACKEND)) $(ARGS)

.PHONY: replicate-all $(PAPERS) compare smoke settle report site figures verify verify-plain notebooks
.PHONY: readings power new-paper

replicate-all: $(COMPILED) ## every paper (TIER=smoke|quick|paper SEEDS=5 JOBS=2 BACKEND=ray)
	@[ $(TIER) = smoke ] || $(BIN)/fedclust data || \
		echo 'Papers whose data are missing use a stand-in, and say so.'
	$(BIN)/fedclust replicate $(PAPERS) $(OPTIONS)
	@[ $(TIER) = smoke ] || $(BIN)/fedclust report --tier $(TIER)

$(PAPERS): $(COMPILED)
	$(BIN)/fedclust replicate $@ $(OPTIONS)

compare: $(COMPILED) ## all methods on one bench: when does clustering pay? (ARGS="--method mine.Mine")
	$(BIN)/fedclust compare $(OPTIONS)

smoke: $(READY) ## every notebook in seconds, on stand-in data, as the tests do
	$(MAKE) --no-print-directory replicate-all TIER=smoke

settle: $(COMPILED) ## train what the plan of seeds asks for, then stop (KEYS=joint HOURS=2 JOBS=2)
	$(BIN)/fedclust settle $(KEYS) $(if $(HOURS),--hours $(HOURS)) $(if $(JOBS),--jobs $(JOBS))

report: $(READY) ## fill the scoreboard: README and figures/<tier>/scoreboard.md
	$(BIN)/fedclust report

site: $(READY) ## static pages of the executed notebooks: build/site/index.html
	$(BIN)/fedclust site

SHIPPED = $(patsubst figures/$(TIER)/%/records.json,%,$(wildcard figures/$(TIER)/*/records.json))

figures: $(READY) ## redraw the figures from shipped records: make figures TIER=paper
	@[ "$(SHIPPED)" ] || { echo 'no records are shipped at TIER=$(TIER)'; exit 2; }
	FEDCLUST_SHIPPED=use $(BIN)/fedclust replicate $(SHIPPED) $(OPTIONS)

verify: $(COMPILED) ## train some of the shipped trials again and compare
	$(BIN)/fedclust verify --tier $(TIER)

verify-plain: $(READY) ## replicate all papers without compiled code: does any verdict differ?
	$(BIN)/fedclust verify --plain --tier $(TIER)

readings: $(COMPILED) ## open values read otherwise: where a claim holds (KEYS=dcfl DRAWS=64)
	$(BIN)/fedclust readings $(KEYS) $(if $(DRAWS),--draws $(DRAWS)) $(if $(JOBS),--jobs $(JOBS))

power: $(READY) ## what the rule for verdicts sees and errs: figures/verdicts/power.svg
	$(BIN)/fedclust plan

lab: $(READY) ## JupyterLab on replications/, with this environment as its kernel
	@$(BIN)/python -c 'import ipywidgets, jupyterlab' 2> /dev/null || \
		$(BIN)/python -m pip install --no-build-isolation -c requirements.lock -e '.[lab]'
	$(BIN)/jupyter-lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/replications \
		--ContentsManager.pre_save_hook=fedclust.report.notebooks.before_saving $(ARGS)

notebooks: $(READY) ## bring replications/*.ipynb in step with replications/*.py
	$(BIN)/fedclust notebooks

new-paper: ## start a replication from the template: make new-paper KEY=mykey
	@[[ "$(KEY)" =~ ^[a-z][a-z0-9_]*$$ ]] || \
		{ echo 'make new-paper KEY=mykey (small letters and digits)'; exit 2; }
	@! grep -qE '^(\.PHONY:.* )?$(KEY)( |:|$$)' Makefile && \
		[ $(KEY) != all ] && [ $(KEY) != template ] || \
		{ echo '$(KEY) has another meaning to make: take another key'; exit 2; }
	@[ ! -e papers/$(KEY).toml ] || { echo 'papers/$(KEY).toml is there already'; exit 2; }
	@sed 's/KEY/$(KEY)/g' papers/template/paper.toml > papers/$(KEY).toml
	@sed 's/KEY/$(KEY)/g' papers/template/paper.md > papers/$(KEY).md
	@sed 's/KEY/$(KEY)/g' papers/template/replication.py > replications/$(KEY).py
	@echo 'papers/$(KEY).toml, papers/$(KEY).md and replications/$(KEY).py are there.'
	@echo 'Try: make $(KEY) TIER=smoke'
