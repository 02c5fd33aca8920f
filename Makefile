# Everything a developer or an operator does with a clone. `make` alone lists it.
PY := .venv/bin/python
DATA := $(or $(ATOLL_DATA),/var/lib/atoll)
LOCK_OPTIONS := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet
TEMPLATES := src/atoll/node/install/templates

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-compat check fmt bench fuzz soak serve lock clean clean-host

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make this host and this clone ready (root; the second time it does nothing)
	@tools/bootstrap.sh

demo: setup ## a sandbox from birth to death, with the time of each step
	@$(PY) examples/demo.py

test: setup ## all tests, on the real thing
	@$(PY) -m pytest

test-compat: setup ## other vendors' clients of every pinned version, in every mode
	@ATOLL_TEST_COMPAT=all $(PY) -m pytest tests/compat

check: setup ## format, lint, types, layers, generated files
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PY) tools/unasync.py --check
	@$(PY) tools/openapi.py --check
	@$(PY) tools/tables.py --check
	@$(PY) -m pytest -q tests/test_architecture.py

fmt: ## format the code
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: setup ## measure, beside bare runsc in the same minute
	@$(PY) tools/bench.py

fuzz: setup ## the property tests with thousands of new examples each
	@$(PY) -m pytest -q --hypothesis-profile=fuzz -o timeout=0 -o faulthandler_timeout=0 tests/unit tests/property

soak: setup ## sandboxes for a long time, looking for leaks; then thousands of histories against the model
	@$(PY) tools/soak.py
	@ATOLL_FAULTS=all $(PY) -m pytest -q -o timeout=0 -o faulthandler_timeout=0 tests/integration/test_faults.py
	@ATOLL_SIMULATION_HISTORIES=1000 ATOLL_HISTORIES=2000 ATOLL_REAL_HISTORIES=30 $(PY) -m pytest -q -o timeout=0 -o faulthandler_timeout=0 \
	    tests/simulation tests/integration/test_histories.py

serve: setup ## run the server in the foreground
	@.venv/bin/atoll serve

lock: ## pin the newest allowed versions again, with hashes
	@printf 'hatchling==1.33.0\neditables\nuv==0.13.7\n' | \
	    .venv/bin/uv pip compile $(LOCK_OPTIONS) --all-extras --group dev pyproject.toml - --output-file constraints.txt
	@.venv/bin/uv pip compile $(LOCK_OPTIONS) $(TEMPLATES)/code.in --output-file $(TEMPLATES)/code.txt
	@.venv/bin/uv pip compile $(LOCK_OPTIONS) $(TEMPLATES)/../runsc/go.in --output-file $(TEMPLATES)/../runsc/go.txt

clean: ## remove .venv and the caches of this clone
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find src tests tools examples -name __pycache__ -type d -prune -exec rm -rf {} +

clean-host: ## unmount the disk pool and remove all data of the server (CONFIRM=1)
	@test "$(CONFIRM)" = 1 || { echo "this removes $(DATA) with all sandboxes and templates: make clean-host CONFIRM=1"; exit 1; }
	@.venv/bin/atoll setup --remove --data $(DATA)
