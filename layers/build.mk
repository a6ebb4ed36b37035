# `sam build` runs `make build-<logical id of the layer>` in a copy of the layer's ContentUri, with the path of the
# Makefile in x86_64/ or arm64/ and, in ARTIFACTS_DIR, the folder to fill.
PYTHON ?= python3
MAKEFILE := $(abspath $(firstword $(MAKEFILE_LIST)))
ARCHITECTURE := $(notdir $(patsubst %/,%,$(dir $(MAKEFILE))))
SCRIPT := $(abspath $(dir $(MAKEFILE))../../scripts/build_layer.py)

build-%:
	@"$(PYTHON)" "$(SCRIPT)" $* $(ARCHITECTURE) "$(ARTIFACTS_DIR)"
