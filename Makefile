# Every target sets up what it needs in .venv, so that a fresh checkout needs only `make <target>`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# uv finds a local CPU build of torch only when told of PIP_FIND_LINKS (which pip reads by itself).
FIND_LINKS := $(addprefix --find-links ,$(PIP_FIND_LINKS))
# Compiled at once: where PYTHONDONTWRITEBYTECODE is set, every process would compile torch anew.
UV := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python

# Two processes of one thread each: more OpenMP threads than cores are ruinous.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 2 --dist worksteal

TORCH_PIN := torch==2.13.0

# What `make quick` tests: the library, without what takes longest: enumeration of all masks, compiled and exported networks,
# and those of transformers.
QUICK_TESTS := $(addprefix tests/,nn replay training prediction inspection metrics baselines conversion contracts test_significance.py test_package.py) \
  $(addprefix --ignore tests/,replay/test_compilation.py $(addprefix conversion/test_,axes.py causality.py export.py hugging_face.py))

.DEFAULT_GOAL := help
.PHONY: help setup demo serve report test quick docs browser check benchmark benchmark-convolutional benchmark-attention benchmark-opening artifacts reliability constraints clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-24s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install the package and its tools in .venv (the other targets do this themselves)
	@$(BIN)/python -c 'import importlib.util, sys; sys.exit("torchvision is installed in .venv, and its mere presence can break `import torchmetrics`.\nThis project does not need it: $(BIN)/pip uninstall torchvision, or make clean." if importlib.util.find_spec("torchvision") else 0)'

demo: setup ## watch contextual dropout at work
	$(BIN)/python -m contextual_dropout_lab.demo

serve: setup | runs/demo ## a page on which the demo's networks answer live: draw a digit
	$(BIN)/contextual-dropout serve

report: setup | runs/demo ## a page of the demo's tables, figures and examples: report/index.html
	$(BIN)/contextual-dropout report runs/demo -o report

runs/demo:
	$(MAKE) --no-print-directory demo

test: setup ## tests and doctests
	$(PYTEST)

quick: setup ## lint, format, types, import order and the fast tests of the library, for use while working (a minute)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy src
	$(PYTEST) -m "not slow" $(QUICK_TESTS)

# Not --quiet: mkdocs would then not count the warnings either.
docs: setup ## the documentation site in site/, warnings being errors; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

browser: ## install Debian's Chromium, which drives the tests of pages, unless there is a browser or no way to
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; \
	then apt-get update -qq && apt-get install -qq --no-install-recommends chromium >/dev/null \
	  || echo "Chromium could not be installed with apt-get: the tests that need a browser will say so"; \
	else echo "no Chromium or Chrome on PATH: install one (on Debian: sudo apt-get install chromium) for the tests of pages"; fi

check: setup ## all that must pass before a commit: lint, format, types, import order, documentation, tests, doctests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/lint-imports --no-cache
	$(MAKE) --no-print-directory docs
	$(PYTEST)

benchmark: setup ## time and variance ratios, measured in one run
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run_prediction.py

benchmark-convolutional: setup ## the cost table of ResNet-18 and WRN-28-10 (some 15 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run_convolutional.py

benchmark-attention: setup ## what a step of MCAN costs with its 62 sites (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run_attention.py

benchmark-opening: setup ## README's opening example against plain networks of its size (some 15 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run_opening.py

artifacts: setup ## what a release carries, in dist/artifacts with checksums: wheel, sdist, networks, records
	@$(BIN)/python -c 'import build' 2>/dev/null || $(BIN)/pip install --quiet 'build>=1.2'
	$(BIN)/python tools/artifacts.py

reliability: setup ## kills, hostile files, many processes, long use, random networks: the full trial behind docs/reliability.md (an hour)
	rm -f $(filter-out experiments/reliability/compatibility-%,$(wildcard experiments/reliability/*.json))
	CONTEXTUAL_DROPOUT_RELIABILITY=full OMP_NUM_THREADS=1 $(BIN)/python -m pytest --timeout 3600 tests/reliability tests/generated tests/distributed tests/lab/runs/test_processes.py tests/lab/launch/test_slurm.py tests/lab/serve/test_visitors.py

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	@if [ -n "$(FIND_LINKS)" ] \
	  && $(BIN)/pip install --quiet -c constraints.txt uv \
	  && $(UV) -c constraints.txt $(FIND_LINKS) -e ".[dev]"; \
	then echo "installed with uv"; \
	else echo "installing with pip (takes minutes)"; $(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"; fi
	@touch $@

constraints: ## pin constraints.txt anew to what resolves today (keeps its opening comment)
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet uv
	$(UV) $(FIND_LINKS) "$(TORCH_PIN)" -e ".[dev]"
	@{ sed '/^[^#]/,$$d' constraints.txt; \
	  $(BIN)/uv pip freeze --python $(BIN)/python --exclude-editable \
	  | grep -vE '^(pip|nvidia-.*|triton)==' | sed 's/+[a-z0-9.]*$$//'; } > constraints.new
	@mv constraints.new constraints.txt
	@touch $(STAMP)

clean: ## remove .venv, caches and builds
	rm -rf .venv build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
