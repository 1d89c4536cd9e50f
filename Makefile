# SPDX-License-Identifier: GPL-2.0-or-later
# Two commands on a fresh Debian 12 or 13: `make demo` and `make test`.  Each installs by name
# what is missing (tools/prepare says what and why) and is quick when nothing is.

KDELTA := .venv/bin/kdelta

.PHONY: help demo test test-full bench examples check setup clean

help:
	@echo 'make demo   find the release in which mprotect() executes more instructions, and the functions'
	@echo 'make test   every gate: format, lint, types, C, shell, unit tests, boots (./check)'
	@echo 'make test-full  what takes too long for that: bisections over the archive and over built commits'
	@echo 'make bench  measure again the figures of docs/reference.md (forty minutes)'
	@echo 'make examples  count again what docs/examples and README.md show, and write it anew'
	@echo 'make setup  only install what is missing, into .venv and through apt'
	@echo 'make check  ./check without looking for what is missing'
	@echo 'make clean  remove .venv and what was built; the cache of kernels stays'

demo:
	tools/prepare run
	$(KDELTA) run studies/mprotect-shared-dirty.toml
	$(KDELTA) explain latest 6.16 6.17

test:
	tools/prepare test
	./check

test-full:
	tools/prepare test
	./check
	.venv/bin/python bench/full_bisect.py

bench:
	tools/prepare run
	.venv/bin/python bench/figures.py
	.venv/bin/python bench/series.py

examples:
	tools/prepare run
	.venv/bin/python bench/examples.py
	.venv/bin/python bench/picture.py

check:
	./check

setup:
	tools/prepare test
	@echo 'kdelta is in .venv now: source .venv/bin/activate'

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
