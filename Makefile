# Two commands matter: `make sweep` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup sweep test check structure compiled-structure asv clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt setuptools wheel torch
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	$(BIN)/asv machine --yes
	touch $(STAMP)

sweep: setup
	$(BIN)/andrea-bench sweep

test: check
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

# The structure of the project's own kernels, which tests/inspect/test_structure.py holds against the code.
# every_kernel.json names none: it has each Triton kernel with a forward pass, a new one too.
GATE_GPUS := rtx_4090,a100_sxm4_80gb,h200_sxm,b200,rtx_5090
structure: setup
	mkdir -p reports/structure
	$(BIN)/andrea-bench inspect --gpu $(GATE_GPUS) -a head_dim=64,72 \
	  --kernel triton_exact,triton_fused_qkv,triton_output_projection \
	  --save reports/structure/forward.json --markdown reports/structure/forward.md
	$(BIN)/andrea-bench inspect --gpu $(GATE_GPUS) -a head_dim=72 -a direction=backward,decode \
	  --kernel triton_exact,triton_decode \
	  --save reports/structure/backward_decode.json --markdown reports/structure/backward_decode.md
	$(BIN)/andrea-bench inspect --gpu $(GATE_GPUS) -a head_dim=72 \
	  --save reports/structure/every_kernel.json --markdown reports/structure/every_kernel.md

# The same for every GPU of the catalogue, to be published: Facts, page and pictures in a folder of their own.
STRUCTURE ?= reports/$(shell date +%F)-compiled-structure
STRUCTURE_GPUS ?= $(shell $(BIN)/python -c 'from andrea_bench.hardware import gpus; print(*gpus(), sep=",")')
STRUCTURE_HEAD_DIMS ?= 32,48,64,72,80,96,128
STRUCTURE_KERNELS ?= triton_exact,triton_padded
compiled-structure: setup
	mkdir -p $(STRUCTURE)
	$(BIN)/andrea-bench inspect --gpu $(STRUCTURE_GPUS) -a head_dim=$(STRUCTURE_HEAD_DIMS) --kernel $(STRUCTURE_KERNELS) \
	  --save $(STRUCTURE)/facts.json > /dev/null
	cd $(STRUCTURE) && $(abspath $(BIN))/andrea-bench report --facts facts.json --markdown report.md --svg svg
	rm $(STRUCTURE)/svg/*.png

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

asv: setup
	$(BIN)/asv machine --yes
	$(BIN)/asv run
	$(BIN)/asv publish

clean:
	rm -rf $(VENV) build *.egg-info
