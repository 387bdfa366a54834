# demo and test need nothing but Python 3.10 or later and a package registry; both keep to one .venv.
#
#   make demo       record a job whose loss is NaN, find who makes it, reproduce its backward pass, compare with the fixed
#                   job; installs PyTorch (TORCH_INDEX=URL looks in that index too, such as PyTorch's own of CPU builds)
#   make demo-light the same with bundled recordings; without PyTorch it shows what a replay would send
#   make test       run all tests (PYTEST_ARGS='tests/tensorpipe -x' runs some of them)
#   make test-fast  run those that start no process and take no seconds, with fewer examples: most of what can break
#   make test-thorough  run all with more examples and every capture: what tests/thorough.py leaves out otherwise
#   make check      what CI checks beside the tests: ruff and mypy
#   make fix        format, and repair what ruff can repair
#   make golden     what every view says of every capture, compared with bench/golden.txt (GOLDEN_ARGS='--against HEAD~1'
#                   shows how it differs from a commit's, GOLDEN_ARGS=--write keeps it)
#   make faults     put faults into a copy, one by one: which do the tests not find, of those they found before
#                   (2 hours the first time, and goes on where it was stopped; FAULTS_ARGS='gate redaction' tries some)
#   make strings    every text of the program that people may read, by module (STRINGS_ARGS='cli --words 5' prints some)
#   make damage     what is left of damaged captures, into docs/damage.md (DAMAGE_ARGS='--quick' only shows it)
#   make replay-table  replay PyTorch's own tests, into docs/replay.md (TABLE_ARGS='--runs 1' only shows it)
#   make operators  what the installed torch would change in the table of operators that may run without --allow
#                   (OPERATORS_ARGS=--write changes it; bench/operator_crashes.py tries them with hostile arguments)
#   make fuzz       an hour of fuzzing, guided by coverage (FUZZ_SECONDS=600 FUZZ_ARGS='--target jit'); faults in fuzz-out
#   make pairs      record jobs whose calls overlap afresh and score diff and parents by what their workers wrote down
#                   (root; PAIRS_RUNS=3 runs of each kind, PAIRS_ARGS='--verbose nested' of these kinds; some 20 minutes)
#   make bench      time and memory of start-up, of small and large captures beside other programs, of replays, of recorded jobs
#                   (BENCH_ARGS='small big --json FILE' runs these cases)
#   make man        write the manual's pages, one for each command, into build/man (man -l build/man/rpcinspect.1)
#   make packages   build the sdist and the wheel, into dist
#   make docs       docs/reference/ from the help and the table of fields, and the site of the documentation in site/
#   make pictures   draw the pictures of the docs again (chromium; those of browse need nothing)
#   make captures   record the bundled captures again (root; CAPTURES='basic_chain' records only that)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

# pip compiles what it installs, but not what it only points to; where PYTHONDONTWRITEBYTECODE is set, as in many
# containers, nobody else would, and each start would take twice as long.
COMPILE := $(BIN)/python -m compileall -q rpcinspect
# Nor would tests and commands that are started here keep what they compile of changed sources.
unexport PYTHONDONTWRITEBYTECODE

# torch first and alone: where an index offers a CPU build, the packages of CUDA must not come with it.
TORCH_INDEX ?=
TORCH := $(PIP) --no-deps --timeout 10 --retries 1 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch

JOB := captures/demo/train.py
RECORDED := build/demo
BUNDLED := captures/demo
PYTEST_ARGS ?=
# Three more than there are cores: tests wait half of their time for what they started.
PYTEST_JOBS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 3)')
CAPTURES ?=
GOLDEN_ARGS ?=
FAULTS_ARGS ?=
STRINGS_ARGS ?=
DAMAGE_ARGS ?= --write docs/damage.md
BENCH_ARGS ?=
BROWSE_ARGS ?= bench/data/small.pcap
TABLE_ARGS ?= --write docs/replay.md
OPERATORS_ARGS ?=
FUZZ_SECONDS ?= 3600
FUZZ_ARGS ?=
PAIRS_RUNS ?= 10
PAIRS_ARGS ?=

.PHONY: demo demo-light faults strings test test-fast test-thorough check fix golden damage replay-table operators fuzz pairs bench bench-browse captures docs pictures man packages
.DELETE_ON_ERROR:

# $(call heading,text), $(call show,arguments,exit status), $(call record,name,variables of the job)
heading = @printf '\n=== %s ===\n' '$(1)'
show = @printf '$$ rpcinspect %s\n' '$(1)'; $(BIN)/rpcinspect $(1) || [ $$? = $(2) ]
record = @mkdir -p $(RECORDED); $(1)="-o $(RECORDED)/$(1).pcap -- $(BIN)/python $(JOB)"; \
	printf '$$ %s\n' '$(2)rpcinspect record -o $(RECORDED)/$(1).pcap -- python $(JOB)'; \
	{ [ -e $(VENV)/torch.stamp ] && export PYTHONWARNINGS=ignore TORCH_CPP_LOG_LEVEL=ERROR $(2) && \
	{ $(BIN)/rpcinspect record --private-net $$$(1) || { [ $$? = 2 ] && $(BIN)/rpcinspect record $$$(1); }; }; } || \
	{ echo 'It cannot be recorded here: this is the bundled recording.'; gzip -dc $(BUNDLED)/$(1).pcap.gz >$(RECORDED)/$(1).pcap; }

demo: $(VENV)/base.stamp $(VENV)/torch.stamp
	$(call heading,1. Record a job of three workers. Its loss is NaN at step 3.)
	$(call record,nan)
	$(call heading,2. See what the workers sent to each other.)
	$(call show,decode $(RECORDED)/nan.pcap --calls,0)
	$(call heading,3. Find what is wrong: who made the first NaN?)
	$(call show,findings $(RECORDED)/nan.pcap,0)
	$(call heading,4. Reproduce the backward pass: a live worker2 gets what the captured one got. Which line makes NaN?)
	$(call show,replay $(RECORDED)/nan.pcap --path $(BUNDLED) --main $(JOB) --live worker2 --watch nonfinite,2)  # 2: no torch
	$(call heading,5. Record the job with that line mended.)
	$(call record,fixed,FIXED=1 )
	$(call heading,6. Compare the two runs: what has the fix changed?)
	$(call show,diff $(RECORDED)/nan.pcap $(RECORDED)/fixed.pcap,1)  # 1: they are different, as they should be

demo-light: $(VENV)/base.stamp
	$(call heading,1. The bundled recording of a job of three workers. Its loss is NaN at step 3.)
	$(call show,decode $(BUNDLED)/nan.pcap.gz --calls,0)
	$(call heading,2. Find what is wrong: who made the first NaN?)
	$(call show,findings $(BUNDLED)/nan.pcap.gz,0)
	$(call heading,3. See these gradients in full.)
	$(call show,decode $(BUNDLED)/nan.pcap.gz --message 85,0)
	$(call heading,4. What would a replay of the first step send to a live worker2?)
	$(call show,replay $(BUNDLED)/nan.pcap.gz --path $(BUNDLED) --main $(JOB) --live worker2 --context 0:0 --plan,0)
	$(call heading,5. Compare with the fixed job: what has the fix changed?)
	$(call show,diff $(BUNDLED)/nan.pcap.gz $(BUNDLED)/fixed.pcap.gz,1)
	@echo; echo "To record the job and replay it, which needs PyTorch: make demo"

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(PYTEST_JOBS) --dist worksteal $(PYTEST_ARGS)

test-fast: $(VENV)/dev.stamp
	WITHOUT_CHILDREN=1 HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest -n auto -m "not slow" --dist worksteal $(PYTEST_ARGS)

test-thorough: $(VENV)/dev.stamp
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n $(PYTEST_JOBS) --dist worksteal $(PYTEST_ARGS)

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(VENV)/dev.stamp
	$(BIN)/python bench/golden.py $(GOLDEN_ARGS)

faults: $(VENV)/dev.stamp
	nice $(BIN)/python bench/faults.py map
	nice $(BIN)/python bench/faults.py $(FAULTS_ARGS)

strings: $(VENV)/base.stamp
	$(BIN)/python bench/strings.py $(STRINGS_ARGS)

damage: $(VENV)/dev.stamp
	$(BIN)/python bench/damage.py $(DAMAGE_ARGS)

replay-table: $(VENV)/dev.stamp
	$(BIN)/python bench/replay_table.py $(TABLE_ARGS)

operators: $(VENV)/dev.stamp
	$(BIN)/python bench/operators.py $(OPERATORS_ARGS)

fuzz: $(VENV)/dev.stamp
	$(PIP) -e '.[dev,fuzz]'
	nice -n 19 $(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

pairs: $(VENV)/dev.stamp
	nice $(BIN)/python -m tests.pairs --runs $(PAIRS_RUNS) $(PAIRS_ARGS)

bench-browse: $(VENV)/dev.stamp
	$(BIN)/python bench/browse.py $(BROWSE_ARGS)

bench: $(VENV)/dev.stamp
	$(BIN)/python bench/run.py $(BENCH_ARGS)
	$(BIN)/python bench/replay.py
	$(BIN)/python -W ignore bench/record.py

man: $(VENV)/base.stamp
	$(BIN)/python docs/man.py build/man

packages: $(VENV)/dev.stamp
	$(BIN)/python -m build

docs: $(VENV)/dev.stamp
	$(BIN)/python docs/make.py

pictures: $(VENV)/dev.stamp
	$(BIN)/python docs/pictures/make.py
	WRITE_PICTURES=1 $(BIN)/python -m pytest -q tests/browse/test_pictures.py

captures: $(VENV)/dev.stamp
	$(BIN)/python captures/record.py $(CAPTURES)

# A stamp says for which dependencies the environment was last brought up to date. Base and torch are parts of dev.

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/base.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing rpcinspect and its dependencies into $(VENV): a download of some 25 MB"
	@$(PIP) -e .
	@$(COMPILE)
	@touch $@

$(VENV)/torch.stamp: $(VENV)/base.stamp
	@echo "Installing PyTorch into $(VENV), for replay: a download of some 200 MB, or of several GB where your index has CUDA builds only (TORCH_INDEX=URL adds one; make demo-light does without)"
	@if $(TORCH) && $(PIP) -e '.[replay]'; then touch $@; else echo "PyTorch could not be installed: what needs it is left out, and the next make tries again"; fi

$(VENV)/dev.stamp: $(VENV)/torch.stamp
	@echo "Installing what the tests need into $(VENV): a download of some 200 MB"
	@$(PIP) -e '.[dev]'
	@touch $@
