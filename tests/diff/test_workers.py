"""Which worker is which."""

from __future__ import annotations

from rpcinspect.diff.compare import Label, labels, same_workers
from rpcinspect.session.model import Worker


def plain(name: str) -> str:
    return name


def named(*names: str) -> list[Label]:
    return [Label(name, True, n) for n, name in enumerate(names)]


def test_names_decide_and_renames_apply() -> None:
    assert same_workers(named("x", "y"), named("y", "z"), plain) == {"y": "y"}
    renamed = same_workers(named("x", "y"), named("y", "z"), lambda n: {"x": "z"}.get(n, n))
    assert renamed == {"x": "z", "y": "y"}


def test_two_names_are_two_workers() -> None:
    assert same_workers(named("x"), named("z"), plain) == {}


def test_addresses_are_told_apart_by_ids_then_by_who_came_first() -> None:
    a = [Label("10.0.0.1:5", False, None), Label("worker:1", False, 1), Label("ps", True, 0)]
    b = [Label("w1", True, 1), Label("ps", True, 0), Label("10.0.0.9:7", False, None)]
    assert same_workers(a, b, plain) == {"ps": "ps", "worker:1": "w1", "10.0.0.1:5": "10.0.0.9:7"}


def test_labels_of_one_job() -> None:
    workers = (
        Worker(name="w0", id=0, group=0, addresses=()),
        Worker(name="w0", id=4, group=0, addresses=(), job=1),
    )
    seen = ["w0", "worker:3", "10.0.0.1:80", "w0", "worker:²"]
    assert labels(seen, workers, 1) == [
        Label("w0", True, 4),
        Label("worker:3", False, 3),
        Label("10.0.0.1:80", False, None),
        Label("worker:²", False, None),
    ]
