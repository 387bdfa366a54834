"""Options of a replay: what is wrong with them, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.cli.replay import ReplayCommand
from rpcinspect.replayer.planning.devices import Devices
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.workers.seeds import Seeds
from tests.cli.runner import CAPTURES, CHAIN, rpcinspect

COMMAND = ReplayCommand(files=[str(CHAIN)])
OTHERS = (str(CHAIN), "-o", "x")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-", "-"), "only once"),
        ((CHAIN, "--role", "worker0", "--live", "worker1"), "can't be used together"),
        ((CHAIN, "--role", "nobody"), "no worker is called nobody"),
        ((CHAIN, "--role", "worker0,worker1"), "no worker is left to run live"),
        ((CHAIN, "--context", "77"), "no autograd context 77"),
        ((CHAIN, "--context", "x"), "not a context id"),
        ((CHAIN, "--allow", "a b"), "not MODULE, MODULE:NAME"),
        ((CHAIN, "--path", "absent"), "no such file or folder"),
        ((CHAIN, "--main", "absent.py"), "can't be read"),
        ((CHAIN, "--import", "a-b"), "not the name of a module"),
        ((CHAIN, "--import", "a..b"), "not the name of a module"),
        ((CHAIN, "--seed", str(1 << 64)), "64 bits"),
        ((CHAIN, "--seed", "worker1="), "not N or NAME=N"),
        ((CHAIN, "--seed", "nobody=1"), "no live worker has that name"),
        ((CHAIN, "--search-seed", "5:5"), "not FROM:TO"),
        ((CHAIN, "--search-seed", "few"), "not FROM:TO"),
        ((CHAIN, "--threads", "0"), "--threads 0: a number from 1"),
        ((CHAIN, "--threads", "100000"), "to 1024"),
        ((CHAIN, "--memory", "lots"), "--memory lots: not a size, such as 4GB, or none"),
        ((CHAIN, "--memory", "0GB"), "--memory 0GB: not a size"),
        ((CHAIN, "--repeat", "0"), "--repeat 0: a number from 1"),
        ((CHAIN, "--timeout", "0"), "--timeout 0: a finite number above 0"),
        ((CHAIN, "--timeout", "nan"), "--timeout nan"),
        ((CHAIN, "--speed=-1"), "--speed -1: a finite number above 0"),
        ((CHAIN, "--speed", "inf"), "--speed inf"),
        ((CHAIN, "--rtol=-1"), "--rtol -1: must be 0 or more, finite"),
        ((CHAIN, "--atol", "nan"), "--atol nan"),
        ((CHAIN, "-o", CHAIN), "--output would overwrite it"),
        ((CHAIN, "--record", CHAIN), "--record would overwrite it"),
        ((CHAIN, "--main", CAPTURES / "describe.py", "-o", CAPTURES / "describe.py"), "would overwrite it"),
        ((CHAIN, "--record", "out.pcap", "-o", "./out.pcap"), "can't both be written there"),
        ((CHAIN, "--engine", "agent", "--record", "out.pcap"), "torch's agent has its own"),
        ((CHAIN, "--engine", "wire", "--device", "cuda"), "--device cuda needs --engine agent"),
        ((CHAIN, "--engine", "wire", "--map", "cpu=cpu"), "--map needs --engine agent"),
        ((CHAIN, "--map", "cuda:0=cuda:1"), "cuda:1 needs --device cuda"),
        ((CHAIN, "--device", "cuda", "--map", "cuda:0"), "not CAPTURED=LIVE"),
        ((CHAIN, "--device", "cuda", "--map", "0=1"), "not CAPTURED=LIVE"),
    ],
)
@pytest.mark.parametrize("plan", [True, False], ids=["plan", "replay"])
def test_mistakes(arguments: tuple[object, ...], told: str, plan: bool) -> None:
    ran = rpcinspect("replay", *(("--plan",) if plan else ()), *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1


def test_no_mistake() -> None:
    assert list(COMMAND.mistakes()) == []
    fine = replace(
        COMMAND,
        imports=["a.b", "c"],
        seeds=["-1"],
        threads="1024",
        timeout_s=0.5,
        speed=2.0,
        repeat=3,
        rtol=0.0,
    )
    assert list(fine.mistakes()) == []


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ({}, (None, None, False)),
        ({"tolerance": True}, (None, None, True)),
        ({"rtol": 0.1}, (0.1, None, False)),
        ({"atol": 0.0}, (None, 0.0, False)),
        ({"rtol": 0.0, "atol": 0.0, "tolerance": True}, (0.0, 0.0, True)),
    ],
)
def test_tolerances(given: dict[str, Any], rules: tuple[object, ...]) -> None:
    made = replace(COMMAND, **given).replay_options(Sources()).rules
    assert (made.rtol, made.atol, made.by_dtype) == rules
    assert made.strict


def test_without_tolerance_every_bit_counts() -> None:
    assert COMMAND.replay_options(Sources()).rules.tolerance("float32") is None
    assert replace(COMMAND, rtol=0.0, atol=0.0).replay_options(Sources()).rules.tolerance("float32") is None
    assert replace(COMMAND, rtol=0.5).replay_options(Sources()).rules.tolerance("float32") == (0.5, 1e-5)


def test_what_the_engine_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("")
    command = replace(
        COMMAND,
        paths=[tmp_path, file, CAPTURES],
        main=file,
        imports=["mine"],
        seeds=["3", "worker1=0x10"],
        search_seed="1000:1010",
        threads="2",
        timeout_s=4.0,
        speed=1.0,
        repeat=5,
        record=tmp_path / "out.pcap",
        gradients=True,
    )
    sources = command.user_files()
    assert sources.find("basic_chain", "scale") is not None
    options = command.replay_options(sources)
    assert dict(options.workers.files) == {"basic_chain": str(CAPTURES / "basic_chain.py")}
    assert replace(command, trust=True).replay_options(sources).workers.files == ()
    assert options.workers.path == (str(tmp_path), str(CAPTURES))
    assert (options.workers.main, options.workers.imports) == (str(file), ("mine",))
    assert options.seeds == Seeds(everybody=3, own={"worker1": 16})
    assert (options.search_seeds, options.workers.threads) == (range(1000, 1010), 2)
    assert (options.timeout_s, options.speed, options.repeat) == (4.0, 1.0, 5)
    assert (options.record, options.gradients) == (tmp_path / "out.pcap", True)


def test_memory() -> None:
    given = ("none", "512MB", None)
    found = [replace(COMMAND, memory=one).replay_options(Sources()).memory for one in given]
    assert found == [0, 512_000_000, None]


def test_devices_and_the_engine_that_they_need() -> None:
    assert (COMMAND.player, COMMAND.replay_options(Sources()).engine) == ("wire", "wire")
    assert not COMMAND.replay_options(Sources()).workers.cuda
    command = replace(COMMAND, device="cuda", maps=["cuda:0=cuda:1,cuda=cpu", "cpu=cuda:0"])
    options = command.replay_options(Sources())
    assert (options.engine, command.plan_options().engine, options.workers.cuda) == ("agent", "agent", True)
    assert options.devices == Devices("cuda", {"cuda:0": "cpu", "cpu": "cuda:0"})
    assert replace(COMMAND, maps=["cuda:1=cpu"]).player == "agent"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("join", "localhost:1", CHAIN), "localhost:1: not tcp://HOST:PORT"),
        (("join", "tcp://h:1", CHAIN, "--rename", "a"), "--rename: not CAPTURED=MEMBER"),
        (("join", "tcp://h:1", CHAIN, "--rename", "a=c", "--rename", "b=c"), "with each name once"),
        (("join", "tcp://h:1", CHAIN, "--speed", "0"), "--speed 0: a finite number above 0"),
        (("leave", "localhost:1", "worker0"), "localhost:1: not tcp://HOST:PORT"),
    ],
)
def test_mistakes_about_a_running_group(words: tuple[object, ...], told: str) -> None:
    ran = rpcinspect(*words)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--seed=1", "--memory=4GB", "--gradients", "--engine=agent"])
def test_workers_of_others_are_not_set_up(option: str) -> None:
    ran = rpcinspect("join", "tcp://h:1", CHAIN, option)
    assert ran.code == 2
    assert "No such option" in ran.err
