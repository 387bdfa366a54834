"""The build of the agent: what is in the way is told in one line, and it happens once. Loaded is only what
nobody else could have put there."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.recorder.native import build as module
from rpcinspect.recorder.native.build import is_ours, parts, why_not
from tests.forks import popen, run
from tests.recorder.agents import need_agent
from tests.recorder.recording import ROOT, environment

BUILD = ROOT / "rpcinspect" / "recorder" / "native" / "build.py"


def build(cache: Path, *options: str, **env: str) -> list[dict[str, Any]]:
    """What it says, line by line; by a fork of a process that has torch, unless it is to have another one."""
    program = [sys.executable, *options, str(BUILD)]
    surroundings = environment(**{"XDG_CACHE_HOME": str(cache), **env})
    if options or "PYTHONPATH" in env:
        pipes = {"capture_output": True, "text": True}
        done = subprocess.run(program, check=False, **pipes, timeout=600, env=surroundings)
    else:
        done = run(program, timeout=600, env=surroundings)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_torch(folder: Path) -> str:
    """A package that has a version, and no headers."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("")
    (folder / "torch" / "version.py").write_text("__version__ = '9.9.9+none'\ncuda: Optional[str] = None\n")
    return str(folder)


def test_without_torch(tmp_path: Path) -> None:
    assert build(tmp_path, "-S", "-E")[-1]["why"].endswith(" has no torch")


def test_without_headers(tmp_path: Path) -> None:
    told = build(tmp_path / "cache", PYTHONPATH=fake_torch(tmp_path))
    assert told[0] == {"building": "9.9.9+none"}
    assert told[-1]["why"].startswith("the headers of torch are missing: ")
    (folder,) = (tmp_path / "cache" / "rpcinspect").iterdir()
    assert folder.name.startswith("agent-9.9.9+none-")


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"PATH": "/nowhere"}, "there is no C++ compiler (Debian: apt-get install g++)"),
        ({"CXX": "no-such-c++ -m64"}, "CXX is no-such-c++ -m64, and there is no such compiler"),
    ],
)
def test_without_a_compiler(tmp_path: Path, env: dict[str, str], why: str) -> None:
    pytest.importorskip("torch")
    assert build(tmp_path, **env)[-1] == {"why": why}


@pytest.mark.slow
def test_a_build_that_fails_names_its_log(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    compiler = script(tmp_path / "c++", "echo first; echo 'agent.cpp:3:1: error: no such thing' >&2; exit 1")
    why = build(tmp_path, CXX=str(compiler))[-1]["why"]
    assert why.startswith("its build failed: agent.cpp:3:1: error: no such thing (all of it: ")
    log = Path(why.rpartition("all of it: ")[2].rstrip(")"))
    assert str(compiler) in log.read_text().splitlines()[0]
    assert not list(log.parent.glob("build-*"))


@pytest.mark.slow
def test_a_library_of_another_torch_is_refused(tmp_path: Path) -> None:
    """It names a symbol that is nowhere."""
    pytest.importorskip("torch")
    real = shutil.which("g++")
    if real is None:
        pytest.skip("no g++ here")
    code = tmp_path / "x.cpp"
    code.write_text(
        'extern "C" void nowhere();\n'
        'extern "C" void* PyInit_rpcinspect_agent_native() { nowhere(); return 0; }'
    )
    compiler = script(tmp_path / "c++", f'for last; do :; done; {real} -shared -fPIC -o "$last" {code}')
    why = build(tmp_path, CXX=str(compiler))[-1]["why"]
    assert why.startswith("it was built, but can't be loaded: "), why
    assert "undefined symbol: nowhere" in why


@pytest.mark.slow
def test_two_at_a_time_build_once(tmp_path: Path) -> None:
    library = need_agent()
    count = tmp_path / "count"
    compiler = script(
        tmp_path / "c++", f'echo >>{count}; sleep 1; for last; do :; done; cp {library.path} "$last"'
    )
    env = environment(XDG_CACHE_HOME=str(tmp_path), CXX=str(compiler))
    both = [popen([sys.executable, str(BUILD)], env=env, stdout=subprocess.PIPE, text=True) for _ in "12"]
    told = [json.loads(process.communicate(timeout=300)[0].splitlines()[-1]) for process in both]
    assert count.read_text() == "\n"
    assert told[0] == told[1]
    assert told[0]["library"].startswith(str(tmp_path / "rpcinspect" / f"agent-{library.torch}-"))
    assert build(tmp_path, CXX="/nowhere") == told[:1], "it is there now"


def test_the_cache_is_ours_alone(tmp_path: Path) -> None:
    """Also one that an earlier version has made."""
    cache = tmp_path / "new" / "cache"
    build(cache, PYTHONPATH=fake_torch(tmp_path))
    made = [cache, cache / "rpcinspect", next((cache / "rpcinspect").iterdir())]
    for again in (False, True):
        assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3
        if not again:
            for each in made[1:]:
                each.chmod(0o755)
            build(cache, PYTHONPATH=str(tmp_path))


@pytest.mark.parametrize("which", ["cache", "rpcinspect", "agent", "library"])
def test_a_library_that_others_could_have_put_there_is_not_loaded(which: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path = fake_torch(tmp_path)
    build(cache, PYTHONPATH=path)
    (agent,) = (cache / "rpcinspect").iterdir()
    library = agent / "rpcinspect_agent_native.so"
    library.write_bytes(b"planted")
    library.chmod(0o600)
    assert build(cache, PYTHONPATH=path)[-1] == {"library": str(library), "torch": "9.9.9+none"}
    changed = {"cache": cache, "rpcinspect": agent.parent, "agent": agent, "library": library}[which]
    changed.chmod(0o777)
    told = build(cache, PYTHONPATH=path)[-1]
    assert told["why"].startswith("the folder is not safe to load from: ")
    assert f"{changed}: other users may write to it" in told["why"]


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("which", ["cache", "rpcinspect", "agent", "library"])
def test_a_library_of_somebody_else_is_not_loaded(which: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path = fake_torch(tmp_path)
    build(cache, PYTHONPATH=path)
    (agent,) = (cache / "rpcinspect").iterdir()
    library = agent / "rpcinspect_agent_native.so"
    library.write_bytes(b"planted")
    changed = {"cache": cache, "rpcinspect": agent.parent, "agent": agent, "library": library}[which]
    os.chown(changed, 65_534, -1)
    told = build(cache, PYTHONPATH=path)[-1]
    assert f"{changed}: belongs to user 65534, neither to you nor to root" in told["why"]


def test_a_cache_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "rpcinspect").write_text("a file")
    assert build(tmp_path, PYTHONPATH=fake_torch(tmp_path))[-1]["why"].endswith(
        f"can't be made: {os.strerror(20)}"
    )


STRANGER = 65_534


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file two folders below one that is ours."""
    path = tmp_path / "cache" / "agent" / "lib.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    for each in (path, path.parent, path.parent.parent):
        each.chmod(0o700)
    return path


def test_every_part_is_looked_at(library: Path, tmp_path: Path) -> None:
    """Links and what they lead to, too."""
    (tmp_path / "short").symlink_to("cache/../cache")
    (tmp_path / "far").symlink_to(tmp_path / "short" / "agent")
    seen = [part for part, _ in parts(str(tmp_path / "far" / "lib.so"))]
    wanted = [tmp_path / "far", tmp_path / "short", tmp_path / "cache", library.parent, library]
    places = [seen.index(str(each)) for each in wanted]
    assert places == sorted(places)
    assert seen[0] == "/"


def test_what_is_ours_alone_is_trusted(library: Path) -> None:
    assert why_not(str(library)) is None
    assert why_not(str(library.parent)) is None


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_what_others_may_write_to_is_not(which: int, mode: int, library: Path) -> None:
    changed = [library, *library.parents][which]
    changed.chmod(mode)
    assert why_not(str(library)) == f"{changed}: other users may write to it"


def test_a_folder_with_the_sticky_bit_keeps_ours_safe_and_a_file_does_not(library: Path) -> None:
    library.parent.chmod(0o1777)
    assert why_not(str(library)) is None
    library.chmod(0o1777)
    assert why_not(str(library)) == f"{library}: other users may write to it"


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_belongs_to_somebody_else_is_not(which: int, library: Path) -> None:
    changed = [library, *library.parents][which]
    os.chown(changed, STRANGER, -1)
    assert why_not(str(library)) == f"{changed}: belongs to user {STRANGER}, neither to you nor to root"


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_link_that_somebody_else_has_made_is_not(library: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(library.parent)
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    assert why_not(str(link / "lib.so")) == f"{link}: belongs to user {STRANGER}, neither to you nor to root"


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_group_is_others_unless_it_is_ours_alone(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library.parent.chmod(0o770)
    assert why_not(str(library)) is None  # root's own
    os.chown(library.parent, -1, 1)
    assert why_not(str(library)) == f"{library.parent}: other users may write to it"
    monkeypatch.setattr(module, "is_ours", lambda group: group == 1)
    assert why_not(str(library)) is None


def test_a_group_of_a_user_s_own() -> None:
    us = pwd.getpwuid(os.geteuid())
    assert is_ours(0)
    assert not is_ours(1)
    assert not is_ours(4_000_000_000)
    assert is_ours(us.pw_gid) or us.pw_gid


def test_what_is_not_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    assert why_not(str(tmp_path / "none")) == f"{tmp_path / 'none'}: No such file or directory"
    assert why_not(str(tmp_path / "a" / "b")) == f"{tmp_path / 'a' / 'b'}: too many links"
