# One door for everything. A user needs Python 3.11 or newer and make; the rest is installed into this folder.
#
#   STAGE=dev|prod|local   the stage that build, synth, diff and deploy are for
#   PYTHON=/path/python3   the Python that the environment is made from

STAGE ?= dev

RUN := .venv/bin/python
CDK := .venv/bin/node node_modules/aws-cdk/bin/cdk

# The CDK app starts `python` and, through jsii, `node`: both are the ones of this folder.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export JSII_NODE := $(CURDIR)/.venv/bin/node

# $(call run_module,NAME): run the package NAME of this folder.
define run_module
@test -f $(1)/__main__.py || { echo "make $@: there is no $(1)/__main__.py in this version yet." >&2; exit 1; }
@$(RUN) -m $(1)
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo local check test unit integration lint type format synth deploy diff bench build clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make the environment in .venv and node_modules (once; later it does nothing)
	@sh tools/set_up.sh

demo: setup ## deploy the app into a local AWS, cross the budget, stop instances, write out/demo/report.html
	@$(MAKE) --no-print-directory build STAGE=local
	$(call run_module,demo)

local: setup ## start a local AWS with the app deployed, and leave it up until Ctrl-C
	@$(MAKE) --no-print-directory build STAGE=local
	$(call run_module,local)

check: setup ## everything that must hold before a change goes in (this is what CI runs)
	@$(RUN) -m tools.check

test: setup ## all tests, without lint, types and coverage
	@$(RUN) -m tools.check unit contract build infrastructure packaging integration

unit: setup ## the tests of seconds: domain and handlers
	@$(RUN) -m tools.check unit

integration: setup ## the tests that deploy the app into the local AWS
	@$(RUN) -m tools.check build integration

lint: setup ## ruff (rules and format) and the import contracts
	@$(RUN) -m tools.check lint imports

type: setup ## mypy, strict
	@$(RUN) -m tools.check type

format: setup ## put the code into its form and fix what ruff can fix
	@$(RUN) -m ruff check --fix --quiet --exit-zero .
	@$(RUN) -m ruff format .

synth: build ## write the CloudFormation of STAGE into cdk.out
	@$(CDK) synth --quiet -c stage=$(STAGE)

deploy: build ## deploy STAGE into the account of the usual AWS variables
	@$(CDK) deploy --all -c stage=$(STAGE)

diff: build ## what a deploy of STAGE would change
	@$(CDK) diff -c stage=$(STAGE)

bench: setup ## measure cold start, CPU and memory of the functions
	@$(MAKE) --no-print-directory build STAGE=local
	$(call run_module,bench)

build: setup ## build the layer of STAGE (and for local what runs functions there)
	@$(RUN) -m layers.build --stage $(STAGE)

clean: ## remove what was built; the environment stays
	rm -rf build cdk.out out .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -not -path './node_modules/*' -prune -exec rm -rf {} +
