# Thin names for scripts/dev.py, which sets everything up by itself. Extra arguments: make test ARGS="-k settle"
PYTHON ?= python3
ARGS ?=

.PHONY: run demo test lint bench chaos aws build lock setup tools browser postgres
run demo test lint bench chaos aws build lock setup tools browser postgres:
	@$(PYTHON) scripts/dev.py $@ $(ARGS)
