# Two commands on a fresh machine: `make demo` and `make test`. Needs Python >= 3.10 and make.
# `make VENV=DIR` uses another environment, `make PYTHON=PATH` makes it from another Python.

VENV   ?= .venv
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo "$$candidate" && break; done)
ARGS   ?= -n 2

BIN   := $(VENV)/bin
BUILD := .build
DEMO  := $(VENV)/.isomorph-demo
DEV   := $(VENV)/.isomorph-dev
OWNER := $(VENV)/.isomorph-checkout

# An environment shared by two checkouts serves the one installed last: install again.
ifneq ($(shell cat $(OWNER) 2>/dev/null),$(CURDIR))
REINSTALL := reinstall
endif

.DELETE_ON_ERROR:
.PHONY: help demo test test-gpu dev lint types wheel-check bench parity-power clean reinstall

help:
	@echo 'make demo         export the digits example to ONNX and print its parity report'
	@echo 'make test         run the tests (make test ARGS="tests/exporter -x" for some of them)'
	@echo 'make test-gpu     compare CPU and GPU on a machine with CUDA (installs nothing: see docs/gpu.md)'
	@echo 'make lint         check format and style'
	@echo 'make types        mypy --strict on the package'
	@echo 'make wheel-check  build the wheel, install it alone, import every module'
	@echo 'make bench        run the benchmarks (minutes)'
	@echo 'make parity-power measure what parity finds, and write docs/parity.md (half an hour)'
	@echo 'make dev          only set up the environment in $(VENV)'
	@echo 'make clean        remove what was built; $(VENV) stays'

demo: $(DEMO)
	@mkdir -p $(BUILD)/demo
	$(BIN)/isomorph export examples/digits/digits.pt --model examples/digits/train.py:DigitsNet \
		--format onnx --input x=1x1x8x8 --dynamic x.0=batch:1..64 \
		--data examples/digits/samples.npz --output $(BUILD)/demo/digits.onnx

# Two workers with two threads each on two cores slow each other down many times over.
test: $(DEV)
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/pytest $(ARGS)

# A borrowed GPU machine has no network: its own Python runs the package from the checkout.
test-gpu:
	@mkdir -p $(BUILD)/gpu && ln -sfn ../.. $(BUILD)/gpu/isomorph
	PYTHONPATH="$(CURDIR)/$(BUILD)/gpu" "$(PYTHON)" -m pytest -m gpu -p no:cacheprovider --durations=5 tests/gpu

dev: $(DEV)

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# The repository root is the package, so mypy reads it through a folder of the package's name.
types: $(DEV)
	@mkdir -p $(BUILD)/typecheck && ln -sfn ../.. $(BUILD)/typecheck/isomorph
	cd $(BUILD)/typecheck && MYPYPATH=. "$(abspath $(BIN))/python" -m mypy --config-file ../../pyproject.toml \
		$(patsubst %,-p isomorph.%,commands exporter targets validation) \
		$(patsubst %.py,-m isomorph.%,$(filter-out __%,$(wildcard *.py))) -m isomorph -m isomorph.__main__

wheel-check: $(DEV)
	$(BIN)/pytest -m wheel tests/test_wheel.py

bench: $(DEV)
	$(BIN)/python benchmarks/noise_floor.py
	$(BIN)/python benchmarks/export_onnx.py
	$(BIN)/python benchmarks/startup.py

# Half an hour on two cores; writes its table into docs/parity.md.
parity-power: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/parity_power.py --jobs 2 --write

clean:
	rm -rf $(BUILD) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@[ -n "$(PYTHON)" ] || { echo 'Isomorph needs Python 3.10 or newer, and none was found.' \
		'Install one, or name it: make PYTHON=/path/to/python3' >&2; exit 1; }
	@command -v "$(PYTHON)" >/dev/null || { echo 'There is no $(PYTHON). Name a Python 3.10 or newer:' \
		'make PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "Isomorph needs Python 3.10 or newer; $(PYTHON) is $$("$(PYTHON)" --version 2>&1)." \
		'Name another: make PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo '$(PYTHON) lacks the venv module. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	"$(PYTHON)" -m venv "$(VENV)"

# Installs the extras named by $(1) into the environment, which may be one made by hand without pip.
define install
@"$(BIN)/python" -m pip --version >/dev/null 2>&1 || "$(BIN)/python" -m ensurepip
"$(BIN)/python" -m pip install -c constraints.txt -e ".[$(1)]"
@echo '$(CURDIR)' > $(OWNER)
endef

$(DEMO): $(VENV)/pyvenv.cfg pyproject.toml constraints.txt $(REINSTALL)
	$(call install,onnx)
	@touch $(DEMO)

$(DEV): $(VENV)/pyvenv.cfg pyproject.toml constraints.txt $(REINSTALL)
	$(call install,all$(comma)test$(comma)lint)
	@touch $(DEMO) $(DEV)

comma := ,
