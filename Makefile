# demo and test need nothing but Python 3.10 or later and a package registry; both keep to one .venv.
#
#   make demo       decode a bundled capture: as a table, then one message in full; replay it where torch is;
#                   and find where two runs of a job part
#   make test       run all tests (PYTEST_ARGS='tests/wire -x' runs some of them)
#   make check      what CI checks beside the tests: ruff and mypy
#   make fix        format, and repair what ruff can repair
#   make damage     what is left of damaged captures, into docs/damage.md (DAMAGE_ARGS='--quick' only shows it)
#   make replay-table  replay PyTorch's own tests, into docs/replay.md (TABLE_ARGS='--runs 1' only shows it)
#   make operators  what the installed torch would change in the table of operators that may run without --allow
#                   (OPERATORS_ARGS=--write changes it; bench/operator_crashes.py tries them with hostile arguments)
#   make fuzz       an hour of fuzzing, guided by coverage (FUZZ_SECONDS=600 FUZZ_ARGS='--target jit'); faults in fuzz-out
#   make bench      time and memory of start-up, of small and large captures beside other programs, of replays, of recorded jobs
#                   (BENCH_ARGS='small big --json FILE' runs these cases)
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

CAPTURE ?= captures/basic_chain.pcap
MESSAGE ?= 6
REPLAY ?= captures/basic_chain.pcap --path captures
DIFF ?= captures/pairs/base.pcap.gz captures/pairs/dropout_seed.pcap.gz
PYTEST_ARGS ?=
CAPTURES ?=
DAMAGE_ARGS ?= --write docs/damage.md
BENCH_ARGS ?=
TABLE_ARGS ?= --write docs/replay.md
OPERATORS_ARGS ?=
FUZZ_SECONDS ?= 3600
FUZZ_ARGS ?=

.PHONY: demo test check fix damage replay-table operators fuzz bench captures pictures
.DELETE_ON_ERROR:

demo: $(VENV)/base.stamp
	$(BIN)/rpcinspect decode $(CAPTURE)
	$(BIN)/rpcinspect decode $(CAPTURE) --message $(MESSAGE)
	$(BIN)/rpcinspect replay $(REPLAY) || [ $$? = 2 ]  # 2: torch is not installed, and that was said
	$(BIN)/rpcinspect diff $(DIFF) || [ $$? = 1 ]  # 1: they are different, as they should be

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

damage: $(VENV)/dev.stamp
	$(BIN)/python bench/damage.py $(DAMAGE_ARGS)

replay-table: $(VENV)/dev.stamp
	$(BIN)/python bench/replay_table.py $(TABLE_ARGS)

operators: $(VENV)/dev.stamp
	$(BIN)/python bench/operators.py $(OPERATORS_ARGS)

fuzz: $(VENV)/dev.stamp
	$(PIP) -e '.[dev,fuzz]'
	nice -n 19 $(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

bench: $(VENV)/dev.stamp
	$(BIN)/python bench/run.py $(BENCH_ARGS)
	$(BIN)/python bench/replay.py
	$(BIN)/python -W ignore bench/record.py

pictures: $(VENV)/dev.stamp
	$(BIN)/python docs/pictures/make.py

captures: $(VENV)/dev.stamp
	$(BIN)/python captures/record.py $(CAPTURES)

# A stamp says for which dependencies the environment was last brought up to date. The base is a part of dev.

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/base.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	$(COMPILE)
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	$(COMPILE)
	touch $(VENV)/base.stamp $@
