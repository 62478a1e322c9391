# make demo    see what it does, on servers of its own
# make test    everything that must hold: lint, types, tests
# make image   the container image, by Docker where there is one
# make image-test  that image before real servers
# make bare TARGET=test  runs a target on a bare Debian, in a clean clone
# make package sdist and wheel, into dist; the wheel for Linux of any distribution (manylinux)
# make lint    ruff and mypy only
# make format  let ruff write what it can
# make bench   what every kind of statement costs, directly and through sqlcache, sysbench's tests,
#              memory, calls from Python, pages of WordPress and Django (fetched from Debian's
#              archive and PyPI), the kernel; some minutes with BENCH_FLAGS=--quick
# make soak    the guarantee under faults, in simulation and by random scripts, SOAK_MINUTES each
# make drivers MySQL drivers' own test suites, and Django's, directly and through sqlcache; wants go,
#              cargo, npm
# make lock    newest versions of all dependencies into requirements.lock
# make clean   remove what these made
#
# Each sets up what it needs: Debian packages (see .ci/system-packages.sh) and .venv.

PYTHON ?= python3
# Tests wait more than they work: seven for two processors, and eight at most, each with 1.5 GB.
TEST_PROCESSES ?= $(shell awk -v n=$$(nproc) '/^MemTotal/ { room = int($$2 / 1.5e6); n = int(n * 3.5); \
	if (n > 8) n = 8; if (n > room) n = room; print n < 1 ? 1 : n }' /proc/meminfo)
# Else each of the thousands of processes that tests start compiles all of sqlcache anew.
export PYTHONDONTWRITEBYTECODE =
SOAK_MINUTES ?= 10
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PACKAGES := .ci/system-packages.sh
KERNEL := hatch_build.py sqlcache/_kernel.pyx

RUN_PACKAGES := python3 python3-venv mariadb-server-core mariadb-client-core memcached
DEV_PACKAGES := python3-dev gcc libc6-dev pkg-config libmariadb-dev mariadb-client mariadb-server \
	sysbench openssl prometheus systemd git chromium
IMAGE_PACKAGES := buildah debootstrap

.PHONY: demo test ready lint format image image-test bare package bench soak drivers lock clean run dev
.DEFAULT_GOAL := test

demo: run
	$(BIN)/sqlcache demo $(DEMO_FLAGS)

# What lint needs one processor for is done beside what the tests need first.
test: dev
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint ready
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal $(PYTEST_FLAGS)

# Collected once, the tests are compiled: else each of the processes does that for itself. Where that
# fails they are to say why.
ready: dev
	$(BIN)/python -m tests.servers
	-$(BIN)/python -m pytest --collect-only >/dev/null

lint: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Docker or podman where one answers, else Debian's buildah.
image: $(BIN)/python image-packages
	docker/build-image $(IMAGE_FLAGS)

image-test: dev image
	TEST_IMAGE=required $(BIN)/python -m pytest $(addprefix tests/docker/,test_image.py test_compose.py)

bare:
	@$(PACKAGES) debootstrap
	tests/docker/suite-in-root $(TARGET)

package: dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	PATH=$(BIN):$$PATH auditwheel repair --wheel-dir dist dist/*-linux_*.whl
	rm dist/*-linux_*.whl
	$(BIN)/python -m twine check --strict dist/*

bench: dev
	$(BIN)/python -m tests.bench $(BENCH_FLAGS)
	$(BIN)/python -m tests.bench.kernel

LIVE_RUN := $(BIN)/python -m tests.coherence.live_run --minutes $(SOAK_MINUTES)

soak: dev
	$(LIVE_RUN) --policy consistency
	$(LIVE_RUN) --policy availability
	$(LIVE_RUN) --policy availability --one-sided-cut
	$(LIVE_RUN) --policy consistency --read-lease-ms 5
	$(LIVE_RUN) --policy availability --read-lease-ms 200
	$(LIVE_RUN) --policy consistency --row-tags --server mysql
	$(LIVE_RUN) --policy availability --row-tags
	$(LIVE_RUN) --policy consistency --direct-writers --server mariadb
	$(LIVE_RUN) --policy availability --direct-writers --server mysql
	$(BIN)/python -m pytest -m soak
	$(BIN)/python -m tests.coherence.model_soak --minutes $(SOAK_MINUTES)
	$(BIN)/python -m tests.fuzz.differential --minutes $(SOAK_MINUTES) --server mariadb
	$(BIN)/python -m tests.fuzz.differential --minutes $(SOAK_MINUTES) --server mysql
	$(BIN)/python -m tests.fuzz.differential --minutes $(SOAK_MINUTES) --server mariadb --row-tags
	$(BIN)/python -m tests.fuzz.differential --minutes $(SOAK_MINUTES) --server mysql --row-tags
	$(BIN)/python -m tests.fuzz.packets --minutes $(SOAK_MINUTES)
	$(BIN)/python -m tests.fuzz.lexer --minutes $(SOAK_MINUTES)

drivers: dev
	$(BIN)/python -m tests.drivers.run --server mariadb --folder .drivers
	$(BIN)/python -m tests.drivers.run --server mysql --folder .drivers

# In a fresh virtual environment, so that nothing else of this machine gets in.
lock: run-packages dev-packages
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip --quiet --disable-pip-version-check install --editable '.[dev]'
	{ echo '# Versions of all dependencies, written by "make lock".'; \
	  $(VENV)-lock/bin/python -m pip --disable-pip-version-check freeze --exclude-editable; \
	} > requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf --one-file-system $(VENV) $(VENV)-lock .image .mypy_cache .ruff_cache .pytest_cache .hypothesis .drivers .pages dist build sqlcache/*.so bench.json bench.svg
	find sqlcache tests examples -name __pycache__ -prune -exec rm -rf {} +

run: run-packages $(VENV)/.run
dev: run-packages dev-packages $(VENV)/.dev

.PHONY: run-packages dev-packages image-packages
run-packages:
	@PYTHON=$(PYTHON) $(PACKAGES) $(RUN_PACKAGES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or later is needed: make PYTHON=/path/to/python3' >&2; exit 1; }

dev-packages: run-packages
	@PYTHON=$(PYTHON) $(PACKAGES) $(DEV_PACKAGES)

image-packages:
	@docker info >/dev/null 2>&1 || podman info >/dev/null 2>&1 || $(PACKAGES) $(IMAGE_PACKAGES)

$(BIN)/python: | run-packages
	$(PYTHON) -m venv $(VENV)

# Most of what the packages hold is never imported, and what is Python compiles then.
INSTALL := $(PIP) install --no-compile --constraint requirements.lock --editable

$(VENV)/.run: pyproject.toml requirements.lock $(KERNEL) | $(BIN)/python
	$(INSTALL) .
	@touch $@

$(VENV)/.dev: pyproject.toml requirements.lock $(KERNEL) | $(BIN)/python dev-packages
	SQLCACHE_IMPL=compiled $(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.run
