"""The relay between debuggers and a terminal: who gets which line, and who is heard no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from rpcinspect.replayer.playing.debug_relay import HELP, DebugRelay
from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object


class Screen:
    """A terminal; what is typed comes through a pipe."""

    def __init__(self) -> None:
        reader, self.keyboard = os.pipe()
        self.input: int | None = reader
        self.shown: list[str] = []
        self.make_room = bool
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        self.shown.append(text)

    def typed(self, line: str) -> None:
        self.lines.append(line)

    def show(self, name: str, line: str) -> None:
        self.shown.append(f"{name} | {line}")

    def say(self, line: str) -> None:
        self.shown.append(line)


class Notes:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.news = threading.Event()

    def note(self, *what: object) -> None:
        self.told.append(what)
        self.news.set()

    def got(self, worker: str, what: Object) -> Object:
        return {"stops": what["digest"] == "mine"}

    def found(self, worker: str, text: str) -> bool:
        self.note("found", worker, text)
        return True

    def hold(self, worker: str, key: str) -> None:
        self.note("hold", worker, key)

    def go_on(self, worker: str, key: str, to: str) -> None:
        self.note("go-on", worker, key, to)

    def quit(self) -> None:
        self.note("quit")


@pytest.fixture
def screen() -> Iterator[Screen]:
    found = Screen()
    assert found.input is not None
    reader = found.input
    yield found
    for number in (reader, found.keyboard):
        try:
            os.close(number)
        except OSError:
            continue


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def relay(screen: Screen) -> Iterator[DebugRelay]:
    with DebugRelay(screen) as found:
        yield found
    assert "debuggers of workers" not in [thread.name for thread in threading.enumerate()]


@pytest.fixture
def ends() -> Iterator[list[ControlSocket]]:
    found: list[ControlSocket] = []
    yield found
    for end in found:
        end.close()


def join(relay: DebugRelay, notes: Notes, ends: list[ControlSocket], name: str) -> ControlSocket:
    """A worker of the relay."""
    ours, theirs = ControlSocket.pair()
    relay.add(name, theirs.sock.detach(), notes)
    ends.append(ours)
    return ours


def reply(end: ControlSocket) -> Object:
    found = end.receive(10.0)
    assert found is not None
    return found[0]


def test_requests_are_answered(relay: DebugRelay, notes: Notes, ends: list[ControlSocket]) -> None:
    one = join(relay, notes, ends, "one")
    one.send({"say": "got", "digest": "mine"})
    assert reply(one) == {"stops": True}
    one.send({"say": "found", "text": "NaN"})
    assert reply(one) == {"stops": True}
    assert notes.told == [("found", "one", "NaN")]


def test_a_dialogue(relay: DebugRelay, notes: Notes, ends: list[ControlSocket], screen: Screen) -> None:
    one = join(relay, notes, ends, "one")
    one.send({"say": "hold", "key": "#7", "head": "one holds", "here": True})
    one.send({"say": "write", "text": "(one) "})
    one.send({"say": "read"})
    os.write(screen.keyboard, b"p x\nhalf")
    assert reply(one) == {"line": "p x\n"}
    one.send({"say": "hold", "key": "8", "head": "once more", "here": True})
    one.send({"say": "read"})
    os.write(screen.keyboard, b" a line\n")
    assert reply(one) == {"line": "half a line\n"}
    one.send({"say": "go-on", "key": "#7", "to": "message"})
    assert reply(one) == {}
    assert notes.told[-1] == ("go-on", "one", "#7", "message")  # before the worker goes on
    one.send({"say": "quit"})
    one.send({"say": "read"})
    os.close(screen.keyboard)
    assert reply(one) == {"line": ""}  # the input has ended
    assert screen.shown == [f"one holds\n{HELP}", "(one) ", "once more\n"]
    assert screen.lines == ["p x", "half a line", ""]
    assert notes.told == [
        ("hold", "one", "#7"),
        ("hold", "one", "8"),
        ("go-on", "one", "#7", "message"),
        ("quit",),
    ]


def test_of_several_the_first_gets_the_line(
    relay: DebugRelay, notes: Notes, ends: list[ControlSocket], screen: Screen
) -> None:
    one, two = (join(relay, notes, ends, name) for name in ("one", "two"))
    two.send({"say": "read"})
    two.send({"say": "hold", "key": "2", "head": ""})
    assert notes.news.wait(10.0)  # so that the relay has read both
    one.send({"say": "read"})
    os.write(screen.keyboard, b"first\nsecond\n")
    assert (reply(two), reply(one)) == ({"line": "first\n"}, {"line": "second\n"})


@pytest.mark.parametrize("what", [{"say": "hold"}, {}, {"say": "got"}, b"\xff" * 12])
def test_nonsense_ends_what_is_heard_of_a_worker(
    relay: DebugRelay, notes: Notes, ends: list[ControlSocket], screen: Screen, what: Object | bytes
) -> None:
    one, two = (join(relay, notes, ends, name) for name in ("one", "two"))
    if isinstance(what, bytes):
        one.sock.sendall(what)
    else:
        one.send(what)
    assert one.receive(10.0) is None
    two.send({"say": "read"})
    os.write(screen.keyboard, b"a line\n")
    assert reply(two) == {"line": "a line\n"}


def test_without_anybody_who_types(notes: Notes, ends: list[ControlSocket], screen: Screen) -> None:
    screen.input, reader = None, screen.input
    with DebugRelay(screen) as relay:
        one = join(relay, notes, ends, "one")
        one.send({"say": "read"})
        assert reply(one) == {"line": ""}
    screen.input = reader
