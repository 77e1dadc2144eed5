# Two commands on a fresh machine: `make demo` and `make test`. Needs Python >= 3.10 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: lint types

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# The repository root is the package, so mypy reads it through a folder of the package's name.
types:
	mkdir -p .build/typecheck && ln -sfn ../.. .build/typecheck/isomorph
	cd .build/typecheck && MYPYPATH=. ../../$(BIN)/python -m mypy --config-file ../../pyproject.toml -p isomorph
