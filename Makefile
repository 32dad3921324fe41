# make train   set up .venv and train the embedded default (configs/digits.py)
# make test    set up .venv and run the tests
# make fashion-mnist   prepare the real Fashion-MNIST of Debian's dataset-fashion-mnist
#              for the tests that read it, in an environment with TensorFlow
# make gpu-compiler   set up what compiles for a GPU without one (main.py plan)
# make litert   set up what writes files of LiteRT (main.py export --format litert)
# make test-bare     both of the first as a stranger to this machine, in a clone in
#              another folder: an empty home, no caches, no data sets, no browser; and
#              make test-newest where Python and JAX are the newest (both as root)
# make test-slow     the longer tests
# make test-exhaustive PART=K/6   a sixth of the longest: parts 1 to 4 share the tests
#              marked `exhaustive`, 5 compiles GPU programs, 6 is the newest Python and
#              JAX (as root)
# make check   what is run before every change lands, but for the exhaustive part

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Without what setuptools says of every editable installation. Python compiles what it
# imports, a fraction of what is installed: pip would take 32 s of its 50 s for the rest.
# Its processes share that, also where the environment asks Python to write nothing.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip install --quiet --no-compile -c constraints.txt
QUIETLY := PYTHONWARNINGS=ignore
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

GPU_COMPILER := .venv-gpu-compiler
LITERT := .venv-litert
PREPARE := .venv-prepare
FASHION_MNIST := .data/tfds/fashion_mnist

# Tests that a newer JAX is most likely to break; and those in which several processes
# train.
CORE_TESTS := $(addprefix tests/, training/test_step.py \
	checkpoints/test_resume.py models/test_models.py \
	parallel/test_gradient_sums.py parallel/test_scaling.py \
	plugins/pipeline/test_stages.py checkpoints/test_store.py training/test_optimizers.py \
	training/test_precision.py inference/test_inference.py export/test_export.py)
PROCESS_TESTS := $(addprefix tests/, processes/test_processes.py \
	processes/test_processes_saving.py processes/test_processes_signals.py \
	processes/test_lost.py processes/test_distributed.py)

.PHONY: train test test-slow test-gpu-program test-processes test-core test-bare \
	newest test-newest lint check fashion-mnist gpu-compiler test-exhaustive \
	litert clean

train: $(STAMP)
	$(BIN)/python main.py --config configs/digits.py

test: $(STAMP)
	$(PYTEST) --cpu-limit -m "not slow and not exhaustive and not gpu_compiler"

test-core: $(STAMP)
	$(PYTEST) -m "not exhaustive" $(CORE_TESTS)

test-processes: $(STAMP)
	$(PYTEST) -m "not exhaustive" $(PROCESS_TESTS)

test-bare:
	tests/machines/bare.sh make train test

newest:
	tests/machines/newest.sh make .venv/.installed

test-newest:
	tests/machines/newest.sh make train test test-processes

test-slow: $(STAMP)
	$(PYTEST) -m "slow and not exhaustive and not gpu_compiler"

# Parts 1 to 4 of 6.
EXHAUSTIVE := test-exhaustive-1 test-exhaustive-2 test-exhaustive-3 test-exhaustive-4
PART ?= 1/6

test-exhaustive: test-exhaustive-$(PART:/6=)

$(EXHAUSTIVE): $(STAMP) $(LITERT)/.installed
	$(PYTEST) -m exhaustive --part $(@:test-exhaustive-%=%)/4

test-exhaustive-5: test-gpu-program

test-exhaustive-6:
	tests/machines/newest.sh make train test-core

test-gpu-program: $(STAMP) $(GPU_COMPILER)/.installed
	XLA_FLAGS= $(BIN)/python -m pytest -n 2 --dist loadgroup -m gpu_compiler

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 jaxtrain
	$(BIN)/pyright
	$(BIN)/lint-imports

check: lint test test-slow test-gpu-program

# The constraints pin the exact versions that are tested, for each Python.
$(STAMP): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(QUIETLY) $(BIN)/python $(INSTALL) -e '.[dev]'
	touch $@

gpu-compiler: $(GPU_COMPILER)/.installed

$(GPU_COMPILER)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(GPU_COMPILER)
	$(GPU_COMPILER)/bin/python -m pip install --quiet --upgrade pip
	$(QUIETLY) $(GPU_COMPILER)/bin/python $(INSTALL) -e '.[gpu-compiler]'
	touch $@

litert: $(LITERT)/.installed

$(LITERT)/.installed: deploy/litert.txt
	$(PYTHON) -m venv $(LITERT)
	$(LITERT)/bin/python -m pip install --quiet --upgrade pip
	$(QUIETLY) $(LITERT)/bin/python -m pip install --quiet --no-compile -r deploy/litert.txt
	touch $@

fashion-mnist: $(FASHION_MNIST)

$(FASHION_MNIST):
	$(PYTHON) -m venv $(PREPARE)
	$(PREPARE)/bin/python -m pip install --quiet --upgrade pip
	$(QUIETLY) $(PREPARE)/bin/python $(INSTALL) -e '.[tfds-prepare]'
	$(PREPARE)/bin/python main.py data --prepare tfds:fashion_mnist \
		--manual-dir /usr/share/datasets/fashion-mnist --data-dir .data/tfds

clean:
	rm -rf $(VENV) $(PREPARE) $(GPU_COMPILER) $(LITERT) .newest .data .hypothesis .pytest_cache .ruff_cache *.egg-info
