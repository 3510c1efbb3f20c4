# Two commands: `make demo` and `make test`. Each sets up everything it needs in .venv first: the demo what the
# package needs, the tests all extras and tools.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PACKAGE := .venv/.package
READY := .venv/.ready
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test test-lowest coverage lint format docs time clean
.DEFAULT_GOAL := demo

$(PACKAGE): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: install one, or say make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) "setuptools" "torch"
	$(PIP) --no-build-isolation --editable .
	touch $@

$(READY): $(PACKAGE)
	$(PIP) --no-build-isolation --editable ".[dev,docs,graph,elmo,cluster,fused,text-pretrained,onnx]"
	touch $@

demo: $(PACKAGE)  ## train, evaluate and report on embedded digits (about 3 minutes on two cores)
	$(BIN)/sgpa demo --out runs/demo

test: $(READY) lint  ## all checks, exactly what the continuous integration runs (about 5 minutes on two cores)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

LOWEST := build/lowest
LOWEST_TESTS := tests/core tests/gp tests/attention tests/evaluation tests/cli tests/data/images tests/inference/test_predict.py

test-lowest:  ## a core part of the tests with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt setuptools torch
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt --no-build-isolation --editable . \
		gpytorch hypothesis pytest pytest-xdist scikit-learn torchmetrics
	$(LOWEST)/bin/python -m pytest -n 2 $(LOWEST_TESTS) -m "not slow and not faults"

coverage: $(READY)  ## lines of src/sgpa that the tests run; lines that only child processes run do not count
	$(PIP) pytest-cov
	$(BIN)/python -m pytest -n 2 --dist loadgroup --cov=sgpa --cov-report=term:skip-covered

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## the documentation site in build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

time: $(PACKAGE)  ## cost of a step and of a prediction on this machine
	$(BIN)/python -m benchmarks.cpu

clean:
	rm -rf .venv runs build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
