# make demo   set up, then denoise a gray and a colour picture that ship with scikit-image
# make app    set up, then open the page in the browser
# make test   set up, then run the tests
# make test-deepinv   the same for the tests with DeepInverse, in an environment of its own
# make test-napari    and for those of the widget in napari
# make lint   style and types
# make docs   build the book into build/docs: its examples are run, warnings are errors, links are checked
# make results   write the tables of README.md and docs/ from results/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEEPINV := .venv-deepinv
NAPARI := .venv-napari

.PHONY: demo app test test-deepinv test-napari lint docs results clean

demo: $(READY)
	$(BIN)/python -m torchdeal.demo demo

app: $(READY)
	$(BIN)/deal app

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

test-deepinv: $(DEEPINV)/.ready
	$(DEEPINV)/bin/python -m pytest tests/integrations/deepinv

# Qt needs no screen, but some libraries: on Debian libegl1 and libxkbcommon0.
test-napari: $(NAPARI)/.ready
	QT_QPA_PLATFORM=offscreen $(NAPARI)/bin/python -m pytest tests/integrations/napari

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(READY)
	rm -rf build/docs docs/examples
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -d build/doctrees docs build/docs
	$(BIN)/python docs/book/check.py build/docs

results: $(READY)
	$(BIN)/python -m torchdeal.benchmark.reporting.pages

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# torchvision, which DeepInverse needs, must fit torch: both are pinned in a file of their own.
$(DEEPINV)/.ready: pyproject.toml constraints-deepinv.txt
	$(PYTHON) -m venv $(DEEPINV)
	$(DEEPINV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-deepinv.txt -e '.[deepinv,demo]' pytest
	touch $@

$(NAPARI)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(NAPARI)
	$(NAPARI)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[napari]' pytest
	touch $@

clean:
	rm -rf $(VENV) $(DEEPINV) $(NAPARI) build dist demo docs/examples .pytest_cache .ruff_cache .hypothesis
