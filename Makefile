# Everything runs inside .venv; nothing here needs root. `make` alone lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# Extra arguments for pytest, as in: make test ARGS='-k cors -x'
ARGS ?=

# So many tests side by side (0: one after the other, as a debugger needs it). A file's tests stay together.
JOBS ?= auto
SPLIT := -n $(JOBS) --maxprocesses 4 --dist loadfile
# End-to-end and wire tests mostly wait for other processes: three files per core at a time, the longest first.
WAITING := -n $(if $(filter auto,$(JOBS)),$(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN)))),$(JOBS)) --maxprocesses 12 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install dev run flask django reliable news watch sharded-cache replica two-services work-queues fan-out chat-express chat-python chat-django quick cover test unit e2e faults test-slow slow-e2e slow-faults test-mutants soak fuzz lint format types changes test-oracle test-browser test-clients test-spark test-postgresql test-prometheus test-install packaging autobahn autobahn-limits bench bench-smoke bench-hub clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- installing: each stamp is made again only when pyproject.toml changed ------------------------------------------

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: install Python 3.11 or later" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "make: gripproxy needs Python 3.11 or later, %s is %d.%d: name another with PYTHON=" % (sys.executable, v[0], v[1]))'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/install: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev,examples]'
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/install

$(STAMPS)/examples: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[examples]'
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/install

$(STAMPS)/browser: pyproject.toml $(STAMPS)/dev
	$(PIP) --editable '.[dev,examples,browser]'
	@touch $@

$(STAMPS)/pubsub: pyproject.toml $(STAMPS)/dev
	$(PIP) --editable '.[dev,examples,pubsub]'
	@touch $@

$(STAMPS)/spark: pyproject.toml $(STAMPS)/dev
	$(PIP) --editable '.[dev,browser,spark,test-spark]'
	@touch $@

NODE_MODULES := examples/chat_express/node_modules/.stamp tests/clients/node/node_modules/.stamp examples/pubsub/node/node_modules/.stamp tests/clients/watcher/node_modules/.stamp

$(NODE_MODULES): %/node_modules/.stamp: %/package-lock.json
	@for tool in node npm; do command -v $$tool >/dev/null || { echo "make: $$tool not found: apt-get install nodejs npm" >&2; exit 1; }; done
	cd $* && npm ci --silent --no-audit --no-fund --no-update-notifier
	@touch $@

install: $(STAMPS)/install ## create .venv with gripproxy in it (.venv/bin/gripproxy)

dev: $(STAMPS)/dev ## the same, with everything the tests and examples need

# --- trying it ------------------------------------------------------------------------------------------------------

run: $(STAMPS)/install ## start gripproxy with a demo to try in a browser (Ctrl-C ends it)
	@$(BIN)/python examples/start.py demo $(ARGS)

flask: $(STAMPS)/examples ## the same with the Flask example
	@$(BIN)/python examples/start.py flask $(ARGS)

django: $(STAMPS)/examples ## the same with the Django example
	@$(BIN)/python examples/start.py django $(ARGS)

chat-django: $(STAMPS)/examples ## a chat with django-eventstream, whose people can be thrown out of one room
	@$(BIN)/python examples/start.py chat-django $(ARGS)

reliable: $(STAMPS)/examples ## SSE, long-poll and WebSocket that miss nothing, on SQLite
	@$(BIN)/python examples/start.py reliable $(ARGS)

news: $(STAMPS)/install ## a publisher and two subscribers by callback, with losses shown and repaired, on the hub
	@$(BIN)/python examples/start.py news $(ARGS)

watch: $(STAMPS)/install ## a live table in a browser that survives resync, with its topic trimmed under it, on the hub
	@$(BIN)/python examples/start.py watch $(ARGS)

sharded-cache: $(STAMPS)/install ## keys that stay stale in a cache invalidated by pubsub, and none in one that watches: ends with a verdict
	@$(BIN)/python examples/start.py sharded-cache $(ARGS)

replica: $(STAMPS)/install ## states that never were in a replica applied in parallel, and none in one that watches: ends with a verdict
	@$(BIN)/python examples/start.py replica $(ARGS)

two-services: $(STAMPS)/install ## two services that follow each other by mailboxes of their own, without a proxy
	@$(BIN)/python examples/two_services/run.py $(ARGS)

work-queues: $(STAMPS)/install ## a queue of steps loses to its late workers, a watch of the desired state does not, on the hub
	@$(BIN)/python examples/start.py work-queues $(ARGS)

fan-out: $(STAMPS)/install ## a consumer away for too long, and a busy key: a broker's stream and a watch, on the hub
	@$(BIN)/python examples/start.py fan-out $(ARGS)

chat-express: $(STAMPS)/install examples/chat_express/node_modules/.stamp ## a chat over WebSockets with Express (apt: nodejs npm)
	@$(BIN)/python examples/start.py chat-express $(ARGS)

chat-python: $(STAMPS)/examples ## the same chat with Flask
	@$(BIN)/python examples/start.py chat-python $(ARGS)

# --- checking it ----------------------------------------------------------------------------------------------------

quick: $(STAMPS)/dev ## format, lint, types and the unit tests of what differs from main: before each commit
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -x $(SPLIT) $$($(BIN)/python -m tests.support.changed) $(ARGS)

test: unit e2e faults ## unit tests, then the quick end-to-end and wire tests against gripproxy, then the quick fault tests

# 5: ARGS chose none of them.
unit: $(STAMPS)/dev ## unit tests only (no sockets)
	$(BIN)/python -m pytest $(SPLIT) tests/unit tests/model $(ARGS) || [ $$? -eq $(if $(strip $(ARGS)),5,0) ]

e2e: $(STAMPS)/dev ## quick end-to-end and wire tests only
	$(BIN)/python -m pytest $(WAITING) --part=quick tests/e2e tests/wire $(ARGS) || [ $$? -eq $(if $(strip $(ARGS)),5,0) ]

faults: $(STAMPS)/dev ## quick fault tests only
	$(BIN)/python -m pytest --part=quick tests/faults $(MUTANTS:%=--ignore=%) $(ARGS) || [ $$? -eq $(if $(strip $(ARGS)),5,0) ]

test-slow: slow-e2e slow-faults ## the other end-to-end, wire and fault tests: examples, loads, hostile peers, longer runs

slow-e2e: $(STAMPS)/dev ## the end-to-end and wire tests of these only
	$(BIN)/python -m pytest $(WAITING) --part=slow tests/e2e tests/wire $(ARGS) || [ $$? -eq $(if $(strip $(ARGS)),5,0) ]

slow-faults: $(STAMPS)/dev ## the fault tests of these only
	$(BIN)/python -m pytest --part=slow tests/faults $(MUTANTS:%=--ignore=%) $(ARGS) || [ $$? -eq $(if $(strip $(ARGS)),5,0) ]

cover: $(STAMPS)/dev ## which lines and branches the unit tests run, and whether they are enough
	$(BIN)/python -m pytest -q $(SPLIT) --cov=gripproxy --cov=handler --cov=griphub --cov-branch --cov-report=json:$(VENV)/coverage.json --cov-report= tests/unit tests/model $(ARGS)
	$(BIN)/python -m tests.support.coverage_gate $(VENV)/coverage.json

MUTANTS := tests/faults/test_mutants.py tests/faults/test_hostile_mutants.py tests/faults/test_hub_mutants.py tests/faults/test_p3sub_mutants.py tests/faults/test_mailbox_mutants.py tests/faults/test_watch_mutants.py tests/faults/test_cache_mutants.py tests/faults/test_soft_mutants.py tests/faults/test_push_mutants.py

test-mutants: $(STAMPS)/dev ## whether the fault tests notice each guarantee that is broken on purpose
	$(BIN)/python -m pytest $(MUTANTS) $(ARGS)

# Minutes, and more for tests/faults/soak.py, as in: make soak MINUTES=60 SOAK='--seed 7'
MINUTES ?= 10
SOAK ?=
# Seconds of each hostile peer before that, as in: make soak HOSTILE=600
HOSTILE ?= 60

soak: $(STAMPS)/dev ## hostile peers for a minute each, then the fault tests for MINUTES=10: 520 clients, a fault every few seconds
	$(BIN)/python -m tests.faults.hostile.run --seconds $(HOSTILE)
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) $(SOAK)

# Minutes for all targets together, and more for tests/fuzz/run.py, as in: make fuzz FUZZ_MINUTES=60 FUZZ='--target frames'
FUZZ_MINUTES ?= 5
FUZZ ?=

fuzz: $(STAMPS)/dev ## coverage-guided fuzzing of all parsers for FUZZ_MINUTES=5, beginning with tests/fuzz/corpus
	$(BIN)/python -m tests.fuzz.run --minutes $(FUZZ_MINUTES) $(FUZZ)

lint: $(STAMPS)/dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMPS)/dev ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMPS)/dev ## mypy, strict
	$(BIN)/mypy

packaging: $(STAMPS)/install ## make the manual pages and the completion scripts anew (packaging/)
	$(foreach program,gripproxy gripproxy-stats,\
		$(BIN)/$(program) man > packaging/man/$(program).1; \
		$(BIN)/$(program) completion bash > packaging/completions/$(program); \
		$(BIN)/$(program) completion zsh > packaging/completions/_$(program); \
		$(BIN)/$(program) completion fish > packaging/completions/$(program).fish;)

changes: $(STAMPS)/dev ## the changelog of the next version (changes/README.md), or write it: make changes RELEASE=0.2.0
	@$(BIN)/python -m tests.support.changes $(RELEASE)

test-oracle: $(STAMPS)/dev ## the wire tests against a real Pushpin (apt: pushpin zurl)
	@for tool in pushpin zurl; do command -v $$tool >/dev/null || { echo "make test-oracle: $$tool not found: apt-get install pushpin zurl" >&2; exit 1; }; done
	@# What fails is tried again, twice: Pushpin itself loses some of what it gets on a busy machine. Ours has one try.
	$(BIN)/python -m pytest tests/wire --proxy=pushpin $(ARGS) || \
		$(BIN)/python -m pytest tests/wire --proxy=pushpin --last-failed $(ARGS) || \
		$(BIN)/python -m pytest tests/wire --proxy=pushpin --last-failed $(ARGS)

test-browser: $(STAMPS)/browser ## EventSource and WebSockets in a headless browser (apt: chromium)
	@command -v chromium >/dev/null || { echo "make test-browser: chromium not found: apt-get install chromium" >&2; exit 1; }
	$(BIN)/python -m pytest tests/browser $(ARGS)

test-clients: $(STAMPS)/pubsub $(NODE_MODULES) ## the GRIP client libraries, those of Pub/Sub, the watcher for browsers, and receivers of callbacks (apt: nodejs npm golang-go)
	@command -v go >/dev/null || { echo "make test-clients: go not found: apt-get install golang-go" >&2; exit 1; }
	$(BIN)/python -m pytest tests/clients $(ARGS)

test-spark: $(STAMPS)/spark ## the Spark jobs, against DuckDB, on a cluster, killed (apt: chromium pushpin zurl)
	@for tool in chromium pushpin zurl; do command -v $$tool >/dev/null || { echo "make test-spark: $$tool not found: apt-get install chromium pushpin zurl" >&2; exit 1; }; done
	$(BIN)/python -m pytest tests/spark --timeout=3600 $(ARGS)

test-postgresql: $(STAMPS)/dev ## the ingester for PostgreSQL against the real thing, with failover and restore (apt: postgresql)
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || { echo "make test-postgresql: postgres not found: apt-get install postgresql" >&2; exit 1; }
	$(BIN)/python -m pytest tests/postgresql $(ARGS)

test-prometheus: $(STAMPS)/dev ## metrics, alert rules and the dashboard against the real Prometheus (apt: prometheus)
	@for tool in prometheus promtool; do command -v $$tool >/dev/null || { echo "make test-prometheus: $$tool not found: apt-get install prometheus" >&2; exit 1; }; done
	$(BIN)/python -m pytest tests/prometheus $(ARGS)

test-install: $(STAMPS)/dev ## the wheel in a bare environment, and behind other servers (apt: zsh fish man-db nginx-light haproxy caddy systemd)
	@for tool in zsh fish man caddy systemctl; do command -v $$tool >/dev/null || { echo "make test-install: $$tool not found: apt-get install zsh fish man-db nginx-light haproxy caddy systemd" >&2; exit 1; }; done
	$(BIN)/python -m pytest tests/install --timeout=600 $(ARGS)

autobahn: $(STAMPS)/dev ## the Autobahn WebSocket suite through gripproxy (needs a Python 2.7; writes docs/autobahn.md)
	$(BIN)/python -m tests.autobahn.run protocol compression

autobahn-limits: $(STAMPS)/dev ## its cases of large messages
	$(BIN)/python -m tests.autobahn.run limits

bench: $(STAMPS)/install ## gripproxy side by side with Pushpin, nchan and a loop in C (docs/performance.md)
	$(BIN)/python bench/compare.py $(ARGS)

bench-smoke: $(STAMPS)/install ## whether that works, within a minute: no speed is judged (apt: gcc libc6-dev)
	$(BIN)/python bench/compare.py --quick $(ARGS)

bench-hub: $(STAMPS)/install ## the hub's store next to etcd, PostgreSQL and Redis (apt: etcd-server postgresql redis-server)
	$(BIN)/python bench/hub.py $(ARGS)

clean: ## remove .venv and everything generated
	rm -rf $(VENV) examples/reliable/messages.db* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis $(dir $(NODE_MODULES))
