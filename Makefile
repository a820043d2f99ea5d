# Development of ctx_hooks. Users need none of this: python3 install.py
# Needs python3, make and git; the tools are fetched into .dev/ by tests/tools/bootstrap.

PYTHON ?= python3
ARGS ?=
AGENTS ?=
export JOBS AGENTS
TOOLS := tests/tools
SHIPPED := ctx_hooks.py install.py hooks.json
FIRST := test lint e2e-client bench pictures

.DEFAULT_GOAL := help
.PHONY: help help-all test test-floor test-windows test-windows-core lint bench e2e e2e-client e2e-agents e2e-codex soak pictures dist clean distclean

help: ## the targets that a contributor needs first (make help-all: all of them)
	@echo 'usage: make TARGET [PYTHON=python3.12] [ARGS="..."]'
	@for target in $(FIRST); do $(MAKE) --no-print-directory -s help-all | grep "^  $$target "; done
	@echo 'make help-all lists the others'

help-all:
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

test: ## pytest and bats (ARGS: for pytest alone, e.g. ARGS="tests/test_gate.py -k once"; JOBS: how many at a time)
	@$(TOOLS)/check $(PYTHON) $(ARGS)

test-floor: ## the same on the oldest Python >= 3.8 of this machine
	@floor=$$($(PYTHON) -I $(TOOLS)/bootstrap oldest 3.8) && $(TOOLS)/check "$$floor" $(ARGS)

test-windows: ## pytest on Windows Pythons under Wine, newest and oldest (ARGS as for test)
	@$(PYTHON) -I $(TOOLS)/windows $(ARGS)

test-windows-core: ## its bounded part: locks, replace, hooks, install, doctor; passes where Wine cannot be had
	@$(PYTHON) -I $(TOOLS)/windows --core

lint: ## ruff, shellcheck, the oldest syntax each file promises, and two scanners of hook settings
	@$(TOOLS)/lint $(PYTHON)

bench: ## what each hook costs, as multiples of a bare interpreter (ARGS=--json, --markdown, --client, --words)
	@$(PYTHON) -I tests/bench.py $(ARGS)

e2e: ## the hooks inside the real client, against a stub model on loopback, and the programs of wrap
	@echo '== the real client against a stub model, all of it: some 15 minutes'
	@$(TOOLS)/e2e $(PYTHON) $(if $(ARGS),$(ARGS),tests/e2e)

e2e-client: ## its shorter part, without what is marked long and without wrap
	@echo '== the real client against a stub model: some 6 minutes'
	@$(TOOLS)/e2e $(PYTHON) tests/e2e -m 'not long' --ignore tests/e2e/test_e2e_wrap.py $(ARGS)

e2e-agents: ## the hooks inside the other real clients (AGENTS="codex qwen": only these)
	@$(TOOLS)/e2e $(PYTHON) $(if $(ARGS),$(ARGS),tests/agents)

e2e-codex: ## the cheapest of them
	@$(MAKE) --no-print-directory e2e-agents AGENTS=codex

soak: ## all tests, the seeded loops for long
	@SOAK=1 $(TOOLS)/check $(PYTHON) $(ARGS)

pictures: ## the README's pictures, from runs of the real client
	@python=$$($(PYTHON) -I $(TOOLS)/bootstrap pyte) && "$$python" -I tests/pictures.py
	@$(PYTHON) -I tests/icon.py

dist: $(SHIPPED) ## the shipped files and their SHA256SUMS in dist/
	@rm -rf dist && mkdir dist && cp $(SHIPPED) dist/
	@cd dist && $(PYTHON) -I -c 'import hashlib, sys; [print(hashlib.sha256(open(n, "rb").read()).hexdigest() + "  " + n) for n in sys.argv[1:]]' $(SHIPPED) > SHA256SUMS
	@cat dist/SHA256SUMS

clean: ## remove what was built, keep the tools
	@rm -rf dist .pytest_cache .ruff_cache
	@find . -path ./.dev -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## remove the tools in .dev/ too
	@rm -rf .dev
