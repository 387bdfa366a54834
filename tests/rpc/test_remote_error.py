"""Where an error came from, by texts as workers send them."""

from __future__ import annotations

import pytest

from rpcinspect.rpc.remote_error import cause_line, origin, readable

NESTED = """On WorkerInfo(id=1, name=worker1):
RuntimeError('ArithmeticError: On WorkerInfo(id=2, name=worker2):\\nArithmeticError("can\\'t")\\nTraceback …')
Traceback (most recent call last):
  File "internal.py", line 209, in _run_function
RuntimeError: ArithmeticError: On WorkerInfo(id=2, name=worker2):
ArithmeticError("can't")
"""
SCRIPT = """The following operation failed in the TorchScript interpreter.
Traceback of TorchScript (most recent call last):
  File "c.py", line 23, in sfail
RuntimeError: AssertionError: too small
"""


@pytest.mark.parametrize(
    ("text", "nodes", "cause"),
    [
        ("On WorkerInfo(id=1, name=w):\nKeyError('k')\nTraceback …", (1,), "KeyError('k')"),
        ("Error on Node 1: exploded\nException raised from …", (1,), "exploded"),
        ("Error on Node 2: Error on Node 1: exploded", (2, 1), "exploded"),
        (NESTED, (1, 2), 'ArithmeticError("can\'t")'),
        (SCRIPT, (), "RuntimeError: AssertionError: too small"),
        (
            "mat1 and mat2 shapes cannot be multiplied\nframe #0",
            (),
            "mat1 and mat2 shapes cannot be multiplied",
        ),
        ("", (), ""),
        ("Error on Node 1:", (1,), ""),
        ("a path like C:\\new\\names stays whole\nframe", (), "a path like C:\\new\\names stays whole"),
    ],
)
def test_origins(text: str, nodes: tuple[int, ...], cause: str) -> None:
    found = origin(text)
    assert (found.nodes, found.cause) == (nodes, cause)


def test_the_line_that_tells() -> None:
    assert cause_line([]) == ""
    assert cause_line(["  one ", "two"]) == "one"


def test_a_cause_is_told_in_one_plain_line() -> None:
    raised = ValueError("shapes differ:\n    mat1 'a'\n    mat2 \"b\"\tC:\\new")
    assert readable(repr(raised)) == "ValueError('shapes differ: mat1 'a' mat2 \"b\" C:\\new')"
    assert readable("a path like C:\\new\\names") == "a path like C:\\new\\names"


def test_a_control_code_stays_escaped() -> None:
    assert (
        readable(repr(ValueError("\x1b[31mred\x1b[0m\x07 \ud800")))
        == r"ValueError('\x1b[31mred\x1b[0m\x07 \ud800')"
    )


def test_each_worker_on_the_way_escapes_the_text_once_more() -> None:
    text = "On WorkerInfo(id=3, name=w3):\nKeyError('it isn\\'t\\nthere')\nTraceback"
    for node in (2, 1, 0):
        text = f"On WorkerInfo(id={node}, name=w{node}):\n{RuntimeError(text)!r}\nTraceback …"
    found = origin(text)
    assert (found.nodes, readable(found.cause)) == ((0, 1, 2, 3), "KeyError('it isn't there')")


def test_errors_side_by_side_are_escaped_as_often() -> None:
    first, second = (f"On WorkerInfo(id={n}, name=w{n}):\nKeyError('k')\nTraceback" for n in (3, 4))
    both = f"On WorkerInfo(id=2, name=w2):\n{RuntimeError(f'{first}; {second}')!r}\nTraceback …"
    assert (origin(both).nodes, origin(both).beside) == ((2, 3, 4), (3,))
    passed = f"On WorkerInfo(id=1, name=w1):\n{RuntimeError(both)!r}\nTraceback …"
    assert (origin(passed).nodes, origin(passed).beside) == ((1, 2, 3, 4), (3,))
