"""Remote errors without what is otherwise in every run."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from rpcinspect.equality.errors import compare_errors, essence, named_type, reworded
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.remote_error import RemoteError
from tests.equality.mirrors import mirrored

PYTHON = """On WorkerInfo(id=1, name=worker1):
ValueError('boom')
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/rpc/internal.py", line 209, in _run_function
    result = python_udf.func(*python_udf.args, **python_udf.kwargs)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/job/train.py", line 10, in bad
    raise ValueError("boom")
ValueError: boom
"""
NATIVE = """The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0
Exception raised from infer_size_impl at /__w/aten/src/ATen/ExpandUtils.cpp:35 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7f87d618db8d in /opt/libc10.so)
frame #1: <unknown function> + 0x2df2217 (0x7f87c29f2217 in /opt/venv/libtorch_cpu.so)
"""


def same(one: str, other: str, rules: Rules | None = None) -> bool:
    return not compare_errors(RemoteError(None, one), RemoteError(None, other), "error", rules or Rules())


def test_what_is_left_of_a_python_error() -> None:
    assert essence(PYTHON) == (
        "On WorkerInfo(id=…, name=worker1):\n"
        "ValueError('boom')\n"
        "Traceback (most recent call last):\n"
        "  in bad\n"
        '    raise ValueError("boom")\n'
        "ValueError: boom"
    )


def test_what_is_left_of_a_native_error() -> None:
    assert essence(NATIVE) == NATIVE.splitlines()[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PYTHON, PYTHON.replace("/srv/job/train.py", "/srv/x/train.py").replace("line 10", "line 12")),
        (PYTHON, PYTHON.replace("/srv/job/train.py", "/srv/torch/train.py")),
        (PYTHON, PYTHON.replace("/opt/venv/lib/python3.11/site-packages/", "/src/pytorch/")),
        (PYTHON, PYTHON.replace("id=1", "id=3")),
        (PYTHON, PYTHON.replace("^" * 20, "~" * 7)),
        (NATIVE, NATIVE.replace("0x7f87", "0x7a00").replace("ExpandUtils.cpp:35", "ExpandUtils.cpp:36")),
        (NATIVE, NATIVE.partition("frame #1")[0]),
        (f"RuntimeError({PYTHON!r})", f"RuntimeError({PYTHON.replace('line 10', 'line 11')!r})"),
        (f"RuntimeError({NATIVE!r})", f"RuntimeError({NATIVE.replace('0x9d', '0x9e')!r})"),
        ("connect to 10.0.0.1:4711 failed", "connect to 10.0.0.2:99 failed"),
        ("connect to [::1]:4711 failed", "connect to [fe80::1]:99 failed"),
        ("listening on port 4711", "listening on port 99"),
        ("<object at 0x7f0011>", "<object at 0xffee>"),
        (
            "Could not find autograd context with id: 5",
            "Could not find autograd context with id: 281474976710656",
        ),
        (
            "no RRef GloballyUniqueId(created_on=0, local_id=3)",
            "no RRef GloballyUniqueId(created_on=1, local_id=4)",
        ),
        ("Error on Node 1: boom", "Error on Node 2: boom"),
        ("No such file: '/scratch/ab12/x.bin'", "No such file: '/var/y'"),
        ("<class '__main__.C'>", "<class '__mp_main__.C'>"),
        ("at ../torch/csrc/x.cpp:12", "at ../torch/csrc/x.cpp:13"),
    ],
)
def test_the_same(one: str, other: str) -> None:
    assert one != other
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PYTHON, PYTHON.replace("boom", "bang")),
        (PYTHON, PYTHON.replace("in bad", "in worse")),
        (PYTHON, PYTHON.replace("name=worker1", "name=worker2")),
        (NATIVE, NATIVE.replace("(3)", "(4)")),
        ("expected 3, got 4", "expected 3, got 5"),
        ("timeout of 4000 ms", "timeout of 60000 ms"),
        ("index 3 is out of bounds", "index 4 is out of bounds"),
        ("ratio 1/2", "ratio 1/3"),
        ("", "boom"),
    ],
)
def test_another(one: str, other: str) -> None:
    assert not same(one, other)


def test_the_type_and_the_first_line_that_differs() -> None:
    one = RemoteError("builtins.ValueError", PYTHON)
    other = RemoteError("builtins.KeyError", PYTHON.replace("ValueError", "KeyError"))
    kind, text = compare_errors(one, other, "error", Rules())
    assert (kind.code, kind.path, kind.a_value) == ("error", "error.type", "builtins.ValueError")
    assert (text.path, text.a_value, text.b_value) == ("error.text", "ValueError('boom')", "KeyError('boom')")
    back = compare_errors(other, one, "error", Rules())
    assert [mirrored(difference) for difference in back] == [kind, text]
    assert compare_errors(one, replace(one, type="builtins.ValueError"), "error", Rules()) == []


def test_the_type_is_read_from_the_text_where_nothing_else_tells() -> None:
    assert named_type(PYTHON) == "ValueError"
    assert named_type(NATIVE) is None
    assert named_type("On WorkerInfo(id=0, name=a):\n__mp_main__.Odd('x')") == "__main__.Odd"


def test_workers_that_are_renamed() -> None:
    renames = Rules(renames={"worker1": "trainer"})
    assert same(PYTHON, PYTHON.replace("worker1", "trainer"), renames)
    assert not same(PYTHON, PYTHON, renames)


@pytest.mark.parametrize(
    "part",
    [
        "/",
        "a/",
        "[:",
        ":",
        "frame #",
        "On WorkerInfo(id=1",
        "id ",
        " ",
        "a.",
        "#1 from ",
        "Exception raised from ",
        "^",
    ],
)
def test_long_hostile_text_takes_no_time(part: str) -> None:
    start = time.perf_counter()
    for text in (part * 100_000, f"[{part * 100_000}", f"#1 {part * 100_000}", "id" + part * 100_000):
        essence(text)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("one", "other", "kinds"),
    [
        (PYTHON, PYTHON.replace("/srv/job", "/srv/x"), ["paths"]),
        (
            PYTHON,
            PYTHON.replace("line 209", "line 206").replace("/opt/venv", "/usr"),
            ["paths", "line numbers"],
        ),
        (PYTHON, PYTHON.replace("_run_function", "_run"), ["frames of libraries"]),
        (PYTHON, PYTHON.replace("id=1", "id=3"), ["ids"]),
        (NATIVE, NATIVE.replace("0x7f87", "0x7a00"), ["native frames"]),
        ("connect to 10.0.0.1:4711 failed", "connect to 10.0.0.2:99 failed", ["addresses"]),
        ("<class '__main__.C'>", "<class '__mp_main__.C'>", ["names of modules"]),
        ("boom", "boom\n\n", ["empty lines or length"]),
    ],
)
def test_what_was_taken_out_and_differs(one: str, other: str, kinds: list[str]) -> None:
    assert same(one, other)
    assert reworded(one, other) == reworded(other, one) == kinds
