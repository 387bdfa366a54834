"""Comparisons of real captures: with themselves, with each other, with another recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rpcinspect
from rpcinspect import Comparison, Rules, Run
from rpcinspect.diff.align import align_runs
from rpcinspect.diff.compare import LEAST_NS, compare_runs, latencies
from rpcinspect.diff.merge import merge
from rpcinspect.diff.model import Found
from rpcinspect.equality.difference import Difference
from rpcinspect.errors import CaptureError
from rpcinspect.rpc.command import PythonCall
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.run.run import open_run
from rpcinspect.views.diff.json_lines import diff_lines
from tests.diff.stories import Story, answer, codes, first
from tests.logs import log_of, message
from tests.places import others, recorded, workloads
from tests.thorough import representative

ROOT = Path(__file__).resolve().parents[2]


def captures() -> list[Path]:
    """Captures of every kind."""
    return representative([*workloads(), *others()])


def each_capture() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", captures(), ids=lambda path: f"{path.parent.name}/{path.name}")


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[[Path], Run]]:
    """Opens captures; the last few stay open, for the test that comes next."""
    kept: dict[Path, Run] = {}

    def give(path: Path) -> Run:
        found = kept.pop(path, None)
        if found is None:  # an empty one is false
            found = open_run(str(path))
        kept[path] = found
        if len(kept) > 3:
            kept.pop(next(iter(kept))).close()
        return found

    yield give
    for session in kept.values():
        session.close()


Opened = Callable[[Path], Run]


def mirrored(comparison: Comparison) -> list[tuple[object, ...]]:
    """What must be the same the other way round: codes, messages, verdicts."""
    swap = {"missing": "extra", "extra": "missing"}
    return sorted(
        (
            swap.get(one.difference.code, one.difference.code),
            str(comparison.messages[one.message].b),
            str(comparison.messages[one.message].a),
            one.counts,
            one.difference.tolerated,
        )
        for one in comparison.found
    )


def plainly(comparison: Comparison) -> list[tuple[object, ...]]:
    return sorted(
        (
            one.difference.code,
            str(comparison.messages[one.message].a),
            str(comparison.messages[one.message].b),
            one.counts,
            one.difference.tolerated,
        )
        for one in comparison.found
    )


@each_capture()
def test_a_capture_is_itself(path: Path, opened: Opened) -> None:
    with open_run(str(path)) as other:
        comparison = compare_runs(opened(path), other, Rules(strict=True))
    assert comparison.found == ()
    assert comparison.same
    assert comparison.paired == len(comparison.messages) == len(opened(path))


@each_capture()
def test_the_other_way_round_it_is_the_mirror_image(path: Path, opened: Opened) -> None:
    every = captures()
    partner = every[(every.index(path) + 1) % len(every)]
    there = compare_runs(opened(path), opened(partner))
    back = compare_runs(opened(partner), opened(path))
    assert there.same == back.same
    assert mirrored(there) == plainly(back)


def test_two_recordings_of_one_job() -> None:
    for kinds in (("uv_basic", "uv_mpt"), ("uv_mpt", "uv_basic")):
        paths = [str(ROOT / "captures" / f"transport_matrix_{kind}.pcap.gz") for kind in kinds]
        comparison = rpcinspect.compare(*paths, Rules(strict=True, ignore=frozenset({"latency"})))
        assert comparison.found == ()
        assert comparison.paired == len(comparison.messages) > 0


def test_two_releases_say_the_same() -> None:
    paths = [str(recorded(f"versions/torch-{v}.pcap")) for v in ("1.13.1", "2.14.1")]
    comparison = rpcinspect.compare(*paths)
    assert comparison.same
    assert codes(comparison) == []
    assert comparison.paired == 50
    # The traceback of its one error has the places of the releases' own files.
    (note,) = comparison.notes
    assert note == "1 error text differs only in what is not compared: paths (1), line numbers (1)"


def test_an_old_release_names_no_target_devices() -> None:
    paths = [str(recorded(f"versions/torch-{v}.pcap")) for v in ("1.8.1", "2.14.1")]
    comparison = rpcinspect.compare(*paths)
    assert first(comparison)[0] == "device"
    assert first(comparison)[3] == "device-or-dtype"


def test_without_the_lock_turns_are_missing() -> None:
    paths = [str(ROOT / "captures" / f"{name}.pcap.gz") for name in ("ps_race_lock", "ps_race")]
    comparison = rpcinspect.compare(*paths)
    assert first(comparison)[0] == "missing"
    assert first(comparison)[3] == "missing-call"


def test_two_contexts_of_one_run(opened: Opened) -> None:
    one = opened(ROOT / "captures" / "ctx_crowd.pcap.gz")
    contexts = one.session.contexts
    same = compare_runs(one, one, contexts=(contexts[1], contexts[1]))
    assert same.same
    assert same.a.context == same.b.context == contexts[1].context_id
    other = compare_runs(one, one, contexts=(contexts[1], contexts[2]))
    assert other.a.messages < len(one)
    assert other.a.context != other.b.context
    assert other.messages


def test_what_neither_has_is_told_and_not_called_equal() -> None:
    hidden = str(ROOT / "captures" / "transport_matrix_default.pcap")
    cut = str(recorded("torch/snap300.pcap"))
    comparison = rpcinspect.compare(cut, cut)
    assert comparison.same
    assert comparison.unknown > 0
    with pytest.raises(CaptureError, match="no RPC messages"):
        rpcinspect.compare(hidden, hidden)


def test_calls_that_one_run_has_alone_can_be_ignored(opened: Opened) -> None:
    """With their answers, and only of the side that is named."""
    base, added = (opened(ROOT / "captures" / "pairs" / f"{name}.pcap.gz") for name in ("base", "call_added"))
    told = codes(compare_runs(base, added, Rules(ignore=frozenset({"missing"}))))
    assert told == codes(compare_runs(base, added))
    assert {code for code, _, _ in told} == {"extra"}
    ignoring = compare_runs(base, added, Rules(ignore=frozenset({"extra"})))
    assert ignoring.same
    assert not codes(ignoring)
    back = compare_runs(added, base, Rules(ignore=frozenset({"missing"})))
    assert back.same
    assert back.messages == compare_runs(added, base).messages


def test_progress_counts_messages_once_they_are_known(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcinspect.diff.compare.TOLD_EVERY", 7)
    run = opened(ROOT / "captures" / "basic_chain.pcap")
    told: list[tuple[int, int | None]] = []
    comparison = compare_runs(run, run, progress=lambda *said: told.append(said))
    count = len(comparison.messages)
    before = [said for said in told if said[1] is None]
    assert told == before + [(done, count) for done in range(0, count, 7)]
    assert set(before) == {(0, None)}


def test_a_function_whose_name_is_no_text(tmp_path: Path) -> None:
    udf = b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\n\x8c\x01m\x8c\x04f\xed\xa0\x80\x93)}\x87\x81."
    call = message(kind="PYTHON_CALL", payload=to_payload(PythonCall(udf, False)), id=1, request=True)
    other = message(src="worker1", dst="worker0")
    paths = [tmp_path / "a.rpclog", tmp_path / "b.rpclog"]
    for path, records in zip(paths, ([call, other], [other]), strict=True):
        path.write_bytes(log_of(*records))
    with open_run(str(paths[0])) as a, open_run(str(paths[1])) as b:
        comparison = compare_runs(a, b, Rules())
    (found,) = comparison.found
    assert (found.difference.code, found.difference.a_value) == ("missing", "PYTHON_CALL m.f\\ud800")
    assert "m.f\\\\ud800" in diff_lines(comparison).decode()


INVOKE = (
    b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\nctorch.distributed.rpc.rref_proxy\n_local_invoke\n"
    b"(NX\x03\x00\x00\x00%s)}t}\x87\x81."
)
"""A method of three letters, of whatever object."""


def spent(*times: int) -> Story:
    story = Story()
    for n, time in enumerate(times):
        story.ask("app.f", n, takes=time)
    return story


def told(a: Story, b: Story) -> list[Found]:
    runs = a.run(), b.run()
    alignment = align_runs(*runs)
    return latencies(*runs, alignment.pairs, merge(*runs, alignment))


def slower(a_ns: int, b_ns: int) -> Found:
    """Of three calls, the first of which is the first message."""
    difference = Difference(code="latency", path="median_ns", a_value=a_ns, b_value=b_ns, text="of 3 calls")
    return Found(message=0, difference=difference, counts=False)


def test_medians_that_differ_by_far_are_told_once() -> None:
    a, b = spent(LEAST_NS, LEAST_NS, LEAST_NS), spent(5 * LEAST_NS, 6 * LEAST_NS, 7 * LEAST_NS)
    assert told(a, b) == [slower(LEAST_NS, 6 * LEAST_NS)]
    assert told(b, a) == [slower(6 * LEAST_NS, LEAST_NS)]


def test_methods_behind_one_function_of_torchs_have_times_of_their_own() -> None:
    a, b = Story(), Story()
    for story, factor in ((a, 1), (b, 4)):
        for n, (method, takes) in enumerate([(b"put", LEAST_NS), (b"get", 9 * LEAST_NS), (b"get", LEAST_NS)]):
            begin = 20 * n * LEAST_NS
            takes = takes if n == 1 else factor * takes
            story.call(0, 1, begin, begin + takes, PythonCall(INVOKE % method, False), answer(0))
    found = [one.difference for one in told(a, b)]
    assert [(one.a_value, one.b_value, one.text) for one in found] == [
        (LEAST_NS, 4 * LEAST_NS, None),
        (LEAST_NS, 4 * LEAST_NS, "of 2 calls"),
    ]


def test_small_differences_are_not() -> None:
    assert told(spent(10), spent(900)) == []
    assert told(spent(10 * LEAST_NS), spent(15 * LEAST_NS)) == []
    assert told(spent(LEAST_NS), spent(LEAST_NS)) == []
