"""Two captures that are read and compared in a thread."""

from __future__ import annotations

import threading
from pathlib import Path

from rpcinspect.browse.pair_reading import PairReading
from rpcinspect.diff.compare import check_messages, compare, compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options, Progress
from rpcinspect.run.run import RunModel
from tests.browse.paired import BASE, captured, reading_of
from tests.builders import pcap_file
from tests.places import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"
LONG_S = 60.0


def test_it_comes_to_what_diff_says() -> None:
    other = captured("learning_rate")
    reading = reading_of(BASE, other)
    reading.start()
    reading.wait(LONG_S)
    found = reading.compared
    assert found is not None
    expected = compare(str(BASE), str(other))
    assert (found.comparison.found, found.comparison.first) == (expected.found, expected.first)
    assert len(found.different) == expected.different
    assert expected.first is not None
    assert found.first == expected.found[expected.first.found].message == found.different[0]
    assert sum(map(len, found.found.values())) == len(expected.found)
    reading.close()


def test_it_says_what_goes_on() -> None:
    said: list[str] = []

    def slowly(a: RunModel, b: RunModel, progress: Progress) -> Comparison:
        said.append(reading.state_words)
        progress(1, 4)
        said.append(reading.state_words)
        return compare_runs(a, b)

    def heard(done: int, of: int | None) -> None:
        reading.heard(done, of)
        said.append(reading.state_words)

    options = Options(progress=heard)
    decodings = [Decoding([str(path)], options) for path in (CHAIN, BASE)]
    reading = PairReading(decodings, slowly)
    assert reading.names == ("basic_chain.pcap", "base.pcap.gz")
    reading.start()
    reading.wait(LONG_S)
    reading.close()
    assert said[0].startswith("reading basic_chain.pcap: ")
    assert any(words.startswith("reading base.pcap.gz: ") for words in said)
    assert said[-2:] == ["comparing", "comparing: 25 %"]
    assert reading.state_words == ""


def test_one_capture_is_read_once() -> None:
    """As where two contexts of one run are compared."""
    seen: list[bool] = []

    def same(a: RunModel, b: RunModel, progress: Progress) -> Comparison:
        seen.append(a is b)
        return compare_runs(a, b, contexts=(a.contexts[0], b.contexts[1]))

    reading = PairReading([Decoding([str(BASE)])], same)
    reading.start()
    reading.wait(LONG_S)
    assert seen == [True]
    assert reading.compared is not None
    assert reading.compared.comparison.a.context != reading.compared.comparison.b.context
    assert reading.names == ("base.pcap.gz", "base.pcap.gz")
    reading.close()


def test_what_keeps_runs_from_being_compared_is_told(tmp_path: Path) -> None:
    none = tmp_path / "none.pcap"
    none.write_bytes(pcap_file([]))

    def checked(a: RunModel, b: RunModel, progress: Progress) -> Comparison:
        check_messages(a, b)
        return compare_runs(a, b)

    reading = PairReading([Decoding([str(none)]), Decoding([str(none)])], checked)
    reading.start()
    reading.wait(LONG_S)
    assert isinstance(reading.failure, CaptureError)
    assert str(reading.failure) == "no RPC messages: there is nothing to compare"
    assert reading.compared is None
    reading.close()


def test_it_is_given_up_while_it_compares() -> None:
    begun, closed = threading.Event(), threading.Event()

    def endless(a: RunModel, b: RunModel, progress: Progress) -> Comparison:
        begun.set()
        closed.wait(LONG_S)
        while True:
            progress(0, None)

    reading = PairReading([Decoding([str(CHAIN)]), Decoding([str(CHAIN)])], endless)
    reading.start()
    assert begun.wait(LONG_S)
    threading.Timer(0.05, closed.set).start()
    reading.close()
    assert (reading.compared, reading.failure) == (None, None)
    assert "rpcinspect reading" not in [thread.name for thread in threading.enumerate()]


def test_it_is_given_up_before_it_begins() -> None:
    reading = reading_of(CHAIN, CHAIN)
    reading.close()
    assert reading.compared is None
