# Every target sets up .venv by itself, from Python and a package registry alone.
PYTHON ?= python3
BIN := .venv/bin
# One BLAS thread for benchmarks: what they compare is arithmetic, not thread pools.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 OMP_NUM_THREADS=1

.PHONY: help demo test lint docs picture bench benchcodes packages clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/'

.venv/.ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[photos,label,plots,progress,download,dask]" --group dev
	touch $@

demo: .venv/.ready  ## all methods on scikit-learn's digits; a model of a folder of images, and why it answers so
	$(BIN)/ledl reproduce --splits 3 --out demo
	test -d demo/images || $(BIN)/ledl datasets digits --out demo/images
	$(BIN)/ledl fit demo/images --out demo/model.ledl --features pixels --size 8 --per-class 5
	$(BIN)/ledl predict demo/model.ledl demo/images --labels folder --format csv > demo/labels.csv
	$(BIN)/ledl explain demo/model.ledl demo/images/3/00045.png --out demo/why.html
	@echo "Label the digits yourself, on a page: $(BIN)/ledl label demo/images --labels none"

test: .venv/.ready  ## all tests but the slow ones
	$(BIN)/python -m pytest -m "not slow"

lint: .venv/.ready  ## style, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file examples/mypy.ini examples
	$(BIN)/lint-imports

docs: .venv/.ready  ## documentation with its gallery, in docs/_build/html; a warning is an error
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

picture: .venv/.ready  ## pictures of README.md and the docs: ledl explain and ledl label on digits, as Chromium shows them
	$(BIN)/python docs/make_picture.py
	LEDL_PICTURES=docs/images $(BIN)/python -m pytest tests/labelling/test_page.py -k pictures

bench: .venv/.ready  ## speed against the transcription of the paper, memory, import time
	$(ONE_THREAD) $(BIN)/python benchmarks/speed.py
	$(ONE_THREAD) $(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/import_time.py

benchcodes: .venv/.ready  ## sparse codes against SPAMS, scikit-learn, celer and dictlearn (installs them)
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python benchmarks/coding.py random omp
	$(BIN)/python benchmarks/coding_memory.py
	$(BIN)/python benchmarks/first_call.py

packages: .venv/.ready  ## wheel and sdist in empty environments, with each extra alone (PIN: passed to pip)
	$(BIN)/python benchmarks/packages.py $(foreach pin,$(PIN),--pin "$(pin)")

clean:  ## remove .venv, caches, the demo's results and the documentation as built
	rm -rf .venv .cache demo docs/_build docs/gallery docs/api
