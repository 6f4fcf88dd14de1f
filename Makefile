# Every target sets up what it needs in .venv, so that a fresh checkout needs only `make <target>`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# uv finds a local CPU build of torch only when told of PIP_FIND_LINKS (which pip reads by itself).
FIND_LINKS := $(addprefix --find-links ,$(PIP_FIND_LINKS))
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python

# Two processes of one thread each: more OpenMP threads than cores are ruinous.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 2

TORCH_PIN := torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help setup demo test check benchmark constraints clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install the package and its tools in .venv (the other targets do this themselves)
	@$(BIN)/python -c 'import importlib.util, sys; sys.exit("torchvision is installed in .venv, and its mere presence can break `import torchmetrics`.\nThis project does not need it: $(BIN)/pip uninstall torchvision, or make clean." if importlib.util.find_spec("torchvision") else 0)'

demo: setup ## watch contextual dropout at work
	$(BIN)/python -m contextual_dropout.demo

test: setup ## tests and doctests
	$(PYTEST)

check: setup ## all that must pass before a commit: lint, format, types, tests, doctests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(PYTEST)

benchmark: setup ## time and variance ratios, measured in one run
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run_prediction.py

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
	rm -rf .venv build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
