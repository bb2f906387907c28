# The verbs of this project; CI uses the same. `make serve` needs Python 3.11+ and nothing else.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-dev model serve test test-models test-gpu clients e2e e2e-all compatibility \
	lint types fmt bench soak lock lock-clients clean stack stack-tools image-steps browser

PYTHON ?= python3
# cpu, or cuda on a machine that has a GPU.
TORCH ?= cpu
VENV := .venv
PY := $(VENV)/bin/python
export RADIXGATE_MODEL_DIR ?= $(CURDIR)/.cache/models
MODEL := $(RADIXGATE_MODEL_DIR)/smollm2-135m-instruct.gguf

# One pip step: $(1) what it is for, $(2) pip's arguments. Progress is shown a line a package; the
# whole output goes to a log, and a failure ends in one line.
LOG := $(VENV)/install.log
define pip_run
	@{ $(PY) -m pip install --no-input --retries 2 --progress-bar off $(2) 2>&1 && touch $(VENV)/.ok; } \
		| tee -a $(LOG) | grep --line-buffered -E '^ *(Downloading|Using cached) ' || true
	@test -f $(VENV)/.ok || { echo "radixgate: could not install $(1): $$(grep -E '^ERROR' $(LOG) | tail -n 1 | cut -c1-200) (whole log: $(LOG)). Is the package registry reachable? Then run make again." >&2; exit 1; }
	@rm -f $(VENV)/.ok
endef
define pip_step
	@echo "radixgate: installing $(1)"
	$(call pip_run,$(1),$(2))
endef

help:
	@echo "make serve      install what is needed, fetch the model, serve http://127.0.0.1:8000/v1 (HOST, PORT)"
	@echo "make test       unit, property, integration tests"
	@echo "make e2e        the tests on a real server, and with the clients people use"
	@echo "make e2e-all    the same with more clients       make compatibility    renew docs/compatibility.md"
	@echo "make test-models  real files of other architectures (1.4 GB): tokens, and tools in two agents' loops"
	@echo "make test-gpu   the checks on an NVIDIA GPU, with one table of figures"
	@echo "make lint types what CI checks                   make fmt    format the code"
	@echo "make bench      speed, also beside another server: ARGS=\"--help\""
	@echo "make soak       10,000 damaged schemas through the compile service, 200,000 random requests"
	@echo "                through the prefix cache, killed writers (20 minutes; ARGS=schemas, cache or kills: one)"
	@echo "make stack      the whole arrangement with Docker: docs/deploy.md (make image-steps tries the image's steps without)"
	@echo "make setup      install without serving          make lock   renew the lock files"

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "radixgate: $(PYTHON) is not here; install Python 3.11 or newer, or set PYTHON" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "radixgate: $(PYTHON) is older than 3.11; set PYTHON to a newer one" >&2; exit 1; }
	@echo "radixgate: making $(VENV)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { echo "radixgate: $(PYTHON) cannot make a virtual environment; install its venv module (Debian: python3-venv)" >&2; exit 1; }
	@touch $@

# torch+cpu, or `torch===`, which leaves out the CPU builds that some registries offer beside it.
$(VENV)/.runtime-$(TORCH): $(VENV)/.created requirements.lock requirements-torch.lock requirements-cuda.lock pyproject.toml
	$(call pip_step,the locked dependencies,--no-deps --require-hashes -r requirements.lock)
ifeq ($(TORCH),cuda)
	$(call pip_step,the CUDA libraries,--no-deps --require-hashes -r requirements-cuda.lock)
endif
	@echo "radixgate: installing torch"
ifeq ($(TORCH),cuda)
	@$(PY) -m pip install -q --no-input --retries 2 --no-deps "$$(sed -n 's/^torch==/torch===/p' requirements-torch.lock)" >>$(LOG) 2>&1 || true
endif
ifeq ($(TORCH),cpu)
	@$(PY) -m pip install -q --no-input --retries 2 --no-deps "$$(grep '^torch' requirements-torch.lock)+cpu" >>$(LOG) 2>&1 || true
endif
	$(call pip_run,torch,-r requirements-torch.lock)
	$(call pip_step,radixgate,--no-deps --no-build-isolation -e .)
	@rm -f $(VENV)/.runtime-* && touch $@

$(VENV)/.dev: $(VENV)/.runtime-$(TORCH) requirements-dev.lock
	$(call pip_step,what the tests need,--no-deps --require-hashes -r requirements-dev.lock)
	@touch $@

$(MODEL): | $(VENV)/.runtime-$(TORCH)
	@$(PY) -m gateway.default_model

# The C++ step for this processor and the default model's weights in its layout: some seconds, once.
# Without a compiler the server runs all the same, slower; the line on stderr says so.
$(VENV)/.native: $(wildcard runtime/native/*.h runtime/native/*.cpp) | $(VENV)/.runtime-$(TORCH) $(MODEL)
	@echo "radixgate: building the native step"
	@$(PY) -m runtime.native.preparation $(MODEL) || true
	@touch $@

model: $(MODEL)
setup: $(VENV)/.runtime-$(TORCH) $(MODEL) $(VENV)/.native
setup-dev: setup $(VENV)/.dev

serve: setup
	@exec $(PY) -m gateway.cli serve

test: setup-dev
	@$(PY) -m pytest

test-models: setup-dev
	@$(PY) -m tests.fetch_models
	@$(PY) -m pytest tests/models

# Where there is a GPU, torch's CUDA build is installed; elsewhere the checks say why they are skipped.
test-gpu:
	@if [ -e /dev/nvidiactl ]; then $(MAKE) --no-print-directory setup-dev TORCH=cuda; fi
	@bash .ci/gpu

# Each client that the tests run has an environment of its own, made from its lock.
clients: setup-dev
	@$(PY) -m tests.e2e.clients.environments

# Prometheus, which the tests of the stack ask, from Debian's package; nothing is installed.
stack-tools: setup-dev
	@$(PY) -m tests.stack_tools

# Debian's, for the tests of the page at /ui; without it they are skipped (and fail where CI=true).
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
		&& echo "radixgate: installing chromium, which takes a minute" && apt-get -q update >/dev/null \
		&& DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends chromium >/dev/null 2>&1; } \
		|| echo "radixgate: no chromium, so tests of the page are skipped; install it (Debian: apt-get install chromium)" >&2

e2e: clients stack-tools browser
	@$(PY) -m pytest tests/e2e -m "not wide"

e2e-all: setup-dev browser
	@$(PY) -m tests.e2e.clients.environments --wide
	@$(PY) -m pytest tests/e2e

compatibility: setup-dev
	@$(PY) -m tests.e2e.clients.environments --wide
	@$(PY) -m tests.e2e.clients.matrix

lint: $(VENV)/.dev
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .

types: $(VENV)/.dev
	@$(PY) -m mypy

fmt: $(VENV)/.dev
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

# Missing secrets are made first; ARGS="--profile gpu" for a GPU.
stack:
	@sh deploy/make_secrets.sh
	@docker compose $(ARGS) up --build --detach

# The Dockerfile's steps in a clean folder, and a server from what they leave: some minutes.
image-steps: setup-dev
	@$(PY) -m tests.image_steps $(ARGS)

bench: setup-dev
	@$(PY) -m tests.bench $(ARGS)

soak: setup-dev
	@$(PY) -m tests.soak $(ARGS)

# triton comes with CUDA only and torch has its own step: both are kept out of the locks.
COMPILE := $(PY) -m piptools compile -q --generate-hashes --strip-extras --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-options \
	--unsafe-package torch --unsafe-package triton --unsafe-package pip
lock: $(VENV)/.dev
	@$(COMPILE) -o requirements.lock pyproject.toml
	@$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' \
		| $(COMPILE) -c requirements.lock -o requirements-dev.lock -

lock-clients: setup-dev
	@$(PY) -m tests.e2e.clients.lock $(ARGS)

clean:
	@rm -rf $(VENV) .cache/clients build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
