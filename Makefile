# Works on a fresh machine with Python 3.11 or newer and make, from an archive as well as from a clone.
# A newer Python than the tests have run with is taken only where there is no other.
PYTHON ?= $(shell for most in 14 99; do for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$p" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $$most))" 2>/dev/null && { echo "$$p"; exit; }; done; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find otel_eval -name '*.py' -o -name '*.[ch]' -o -name '*.json' -o -name '*.yaml' 2>/dev/null | grep -v __pycache__)

.DEFAULT_GOAL := help
.PHONY: help demo test quick slow broker test-integration test-all lint style types fix tables bench mutants peers sdk-range fuzz faults kafka examples ui dashboards audit collector clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## install, run a traced agent against the receiver, print its scores and how to go on
	@$(BIN)/python examples/demo.py

unexport PYTHONDONTWRITEBYTECODE # otherwise each of the many processes of the tests compiles all of them again
JOBS ?= 5 # processes that run tests; more than cores, because end-to-end tests wait for timers and processes
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
QUICK := tests/flow tests/docs tests/content tests/cost tests/traces tests/conformance tests/unit # the longest files first
PURE := tests/unit/sources tests/unit/otlp tests/unit/http1 tests/unit/native tests/unit/trajectory tests/unit/assembly tests/traces tests/conformance \
	tests/unit/scorers/test_alignment_by_hashing.py tests/unit/scorers/test_expression.py tests/flow/test_same_everywhere.py \
	tests/fuzz/test_fuzz.py::test_no_bytes_break_a_decoder
test: style ## format, lint, types, layers and all quick tests, in JOBS processes; downloads nothing
	@$(MAKE) --no-print-directory -j2 types quick

quick: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -q $(PARALLEL) -m "not slow" $(QUICK)

test-integration: $(VENV)/.installed-dev ## slow tests, faults, a short fuzz, without extensions, other SDKs, frameworks; downloads them
	@$(MAKE) --no-print-directory -j2 collector slow
	@$(BIN)/python -m pytest -q tests/collector tests/faults tests/fuzz tests/distribution
	@$(MAKE) --no-print-directory -j3 broker sdk-range examples
	@OTEL_EVAL_PURE=1 OTEL_EVAL_TEST_EXAMPLES=300 $(BIN)/python -m pytest -q $(PARALLEL) $(PURE)
	@$(MAKE) --no-print-directory ui

slow: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -q $(PARALLEL) -m slow $(QUICK)

broker: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -q tests/kafka

test-all: ## test, test-integration, other libraries, and faults and fuzz in their long forms; hours
	@for part in test test-integration peers faults kafka fuzz; do $(MAKE) --no-print-directory $$part || exit 1; done

lint: style types ## format, lint, types and layers, without the tests

style: $(VENV)/.installed-dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports

fix: $(VENV)/.installed-dev ## format the code and apply the fixes of the linter
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

tables: $(VENV)/.installed-dev ## write the snapshot of the convention tables, which the package loads, from their YAML files
	@$(BIN)/python -m tests.support.table_snapshot

bench: $(VENV)/.installed-dev ## what a run costs, as one table; half an hour
	@$(BIN)/python tests/bench/table.py

mutants: $(VENV)/.installed-dev ## break the scorers in small ways and see whether a test notices; an hour
	@$(BIN)/python tests/bench/mutation/mutate.py $(MODULES)

PEERS ?= langchain adk uipath deepeval pydantic_evals
peers: ## compare with other libraries, each in an environment of its own; downloads them
	@for peer in $(PEERS); do \
		case $$peer in langchain) package=agentevals;; adk) package=google-adk;; pydantic_evals) package=pydantic-evals;; agentevals_cli) package=agentevals-cli;; *) package=$$peer;; esac; \
		venv=.venv-peers/$$peer; echo "== $$peer"; \
		[ -e "$$venv/.installed" ] || { "$(PYTHON)" -m venv "$$venv" && \
			"$$venv/bin/python" -m pip --disable-pip-version-check --quiet install -e . pytest pytest-timeout hypothesis "$$package" && \
			touch "$$venv/.installed"; } || exit 1; \
		[ -e "tests/peers/test_$$peer.py" ] || continue; \
		PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 "$$venv/bin/python" -m pytest -q -p pytest_timeout -p _hypothesis_pytestplugin \
			"tests/peers/test_$$peer.py" || exit 1; \
	done

sdk-range: $(VENV)/.installed-dev ## the in-process tests on the oldest to the newest SDK
	@$(BIN)/python -m tests.sdk_range

faults: $(VENV)/.installed-dev ## inject faults into a running receiver and print what was lost; slow
	@$(BIN)/python -m tests.faults

collector: ## build the OpenTelemetry Collector that tests start, once, into the user's cache; needs Go, downloads modules
	@"$(PYTHON)" -m tests.support.collector_build

kafka: $(VENV)/.installed-dev ## kill, add and pause members on a real Kafka broker for five minutes, then let writing results fail; needs Java, downloads its jars once
	@$(BIN)/python -m tests.kafka

SECONDS ?= 60
fuzz: ## search for input that breaks a decoder or costs too much, SECONDS for each; downloads a fuzzer if it can
	@[ -e .venv-fuzz/.installed ] || { "$(PYTHON)" -m venv .venv-fuzz && \
		.venv-fuzz/bin/python -m pip --disable-pip-version-check --quiet install -e . && \
		{ .venv-fuzz/bin/python -m pip --disable-pip-version-check --quiet install 'atheris>=3,<4' || true; } && \
		touch .venv-fuzz/.installed; }
	@.venv-fuzz/bin/python -m tests.fuzz --seconds $(SECONDS)
	@.venv-fuzz/bin/python -m tests.fuzz --seconds $(SECONDS) --pure
	@.venv-fuzz/bin/python -m tests.fuzz --seconds $(SECONDS) --cost
	@.venv-fuzz/bin/python -m tests.fuzz --seconds $(SECONDS) --cost --pure

EXAMPLES := .venv-examples
examples: $(VENV)/.installed-dev ## run the examples with agent frameworks, in an environment of their own; downloads them
	@cmp -s tests/frameworks/requirements.txt $(EXAMPLES)/.installed || { rm -rf $(EXAMPLES) && "$(PYTHON)" -m venv $(EXAMPLES) && \
		$(EXAMPLES)/bin/python -m pip --disable-pip-version-check --quiet install -r tests/frameworks/requirements.txt -e . && \
		cp tests/frameworks/requirements.txt $(EXAMPLES)/.installed; } || \
		{ echo "make examples: the frameworks could not be installed; is the package index within reach?" >&2; exit 1; }
	@PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(EXAMPLES)/bin/python -m pytest -q -p pytest_timeout -p no:cacheprovider -p _hypothesis_pytestplugin tests/frameworks

UI := .venv-ui
ui: ## the page in a real Chromium, in an environment of its own; downloads a driver and axe-core, installs Chromium as root
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install -y chromium >/dev/null; } || \
		{ echo "make ui: not run: Chromium is missing and cannot be installed here; install the package chromium" >&2; exit 1; }
	@[ -e $(UI)/.installed ] || { "$(PYTHON)" -m venv $(UI) && \
		$(UI)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e . pytest pytest-timeout hypothesis 'playwright>=1.50,<2' && \
		mkdir -p $(UI)/axe && (cd $(UI)/axe && npm pack --silent 'axe-core@^4.10' >/dev/null && tar -xzf axe-core-*.tgz package/axe.min.js) && \
		touch $(UI)/.installed; } || \
		{ echo "make ui: not run: playwright or axe-core could not be installed; are npm and the package indexes within reach?" >&2; exit 1; }
	@PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(UI)/bin/python -m pytest -q -p pytest_timeout -p no:cacheprovider -p _hypothesis_pytestplugin tests/ui

dashboards: $(VENV)/.installed-dev ## scores in real Phoenix, MLflow and Prometheus; installs 1.8 GB into the user's cache once
	@$(BIN)/python -m tests.dashboards

audit: $(VENV)/.installed-dev ## look for known vulnerabilities of the installed packages; needs a network
	@[ -e .venv-audit/.installed ] || { "$(PYTHON)" -m venv .venv-audit && \
		.venv-audit/bin/python -m pip --disable-pip-version-check --quiet install 'pip-audit>=2.7,<3' && touch .venv-audit/.installed; } || \
		{ echo "make audit: not run: pip-audit could not be installed; is the package index within reach?" >&2; exit 1; }
	@$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable --exclude otel-eval > .venv-audit/installed.txt
	@.venv-audit/bin/pip-audit --strict --disable-pip --no-deps --requirement .venv-audit/installed.txt || \
		{ echo "make audit: a vulnerability is known, or the database cannot be reached; the lines above say which" >&2; exit 1; }

clean: ## remove what was built
	@rm -rf $(VENV) .venv-audit .venv-peers .venv-sdk .venv-fuzz .fuzz .venv-examples .venv-ui build dist otel_eval.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with make PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml setup.py constraints.txt $(SOURCES)
	@echo "installing into $(VENV) (a minute or two)"
	@$(PIP) install -c constraints.txt .
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml setup.py $(filter %.c %.h,$(SOURCES)) constraints.txt
	@echo "installing into $(VENV) for development (a minute or two)"
	@$(PIP) install -c constraints.txt -e '.[dev]' || { echo "the packages for development could not be installed;" \
		"is the package index within reach, and has it all of them for $$($(BIN)/python --version)?" >&2; exit 1; }
	@touch $@
