# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint types unit docs soak atlas bench-attention bench-long bench-images bench-language bench-train bench-memory bench-decode bench-serve bench-bleu clean

demo: .venv/installed
	$(BIN)/regard demo

test: lint types unit

lint: .venv/tested
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs/*/*.py

types: .venv/tested
	$(BIN)/mypy

# One thread to each of pytest's two workers: two of them spinning on two cores would wait for each other.
unit: .venv/tested
	OMP_NUM_THREADS=1 $(BIN)/pytest

# The documentation site, into build/site; open build/site/index.html. A link that leads nowhere is an error.
docs: .venv/tested
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Many minutes: every moment of a run is a moment to be killed in, and so on (docs/robustness.md).
soak: .venv/tested
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 0 -m soak -s tests

# Every snippet and command of docs/atlas, its pictures and its table; PAGES="a5 b1" runs some.
atlas: .venv/tested
	$(BIN)/python -m docs.atlas.run $(PAGES)

bench-attention: .venv/tested
	$(BIN)/python benchmarks/attention.py

bench-long: .venv/tested benchmarks/peers/long/installed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/long.py --plot docs/pictures/efficient.png

bench-images: .venv/tested benchmarks/peers/pictures/installed
	$(BIN)/python -m benchmarks.images
	$(BIN)/python -m benchmarks.images --memory

bench-language: .venv/tested
	$(BIN)/python benchmarks/language.py

bench-train: .venv/tested benchmarks/peers/env/installed
	$(BIN)/python benchmarks/training.py

bench-memory: .venv/tested benchmarks/peers/env/installed
	$(BIN)/python benchmarks/training.py --turns 1

bench-decode: .venv/tested
	$(BIN)/python benchmarks/decoding.py $(if $(RUN),--run $(RUN) --texts $(TEXTS))

bench-serve: .venv/tested benchmarks/peers/litserve/installed
	$(BIN)/python benchmarks/serving.py $(RUN) $(TEXTS) --overload 60

DATA ?= data/multi30k
bench-bleu: .venv/tested
	$(BIN)/python benchmarks/reaching.py $(DATA)

benchmarks/peers/long/installed: | .venv/installed
	$(BIN)/pip install -q --no-deps --target benchmarks/peers/long performer-pytorch==1.1.4 linformer==0.2.3 \
	    local-attention==1.11.2 einops axial-positional-embedding hyper-connections
	@touch $@

benchmarks/peers/litserve/installed: | .venv/installed
	$(BIN)/pip install -q --no-deps --target benchmarks/peers/litserve litserve==0.2.19 pyzmq==27.3.0 psutil==7.2.2
	@touch $@

benchmarks/peers/pictures/installed: | .venv/installed
	$(BIN)/pip install -q --no-deps --target benchmarks/peers/pictures timm==1.0.15
	@touch $@

benchmarks/peers/env/installed: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv benchmarks/peers/env
	benchmarks/peers/env/bin/pip install -q -r $<
	benchmarks/peers/env/bin/pip install -q --no-deps OpenNMT-py==3.5.1
	@touch $@

# A stamp file each, so that a second `make` installs nothing again unless the project's needs have changed.
.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install -q -c constraints.txt -e .
	@touch $@

.venv/tested: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	@touch .venv/installed $@

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
