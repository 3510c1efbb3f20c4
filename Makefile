# Two commands: `make demo` and `make test`. Each sets up everything it needs in .venv first.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint format time clean
.DEFAULT_GOAL := demo

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: install one, or say make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "setuptools" "torch"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev,graph,elmo,cluster,fused]"
	touch $@

demo: $(READY)  ## train, evaluate and report on embedded digits (about 3 minutes on two cores)
	$(BIN)/sgpa demo --out runs/demo

test: $(READY) lint  ## all checks: exactly what the continuous integration runs
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

time: $(READY)  ## cost of a step and of a prediction on this machine
	$(BIN)/python -m benchmarks.cpu

clean:
	rm -rf .venv runs build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
