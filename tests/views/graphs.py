"""A context that a test makes up: names of every kind, edges with, without and with failed gradients."""

from __future__ import annotations

from rpcinspect.run.graph import ContextGraph, GraphEdge, GraphGradient, GraphTensor, Passing

HOSTILE = 'w"1"\\;\x1b[31m<b>\n#end %% }'


def tensor(*shape: int, zero: bool = False, grad: bool = True, layout: str = "strided") -> GraphTensor:
    return GraphTensor(
        dtype="float32", shape=shape, layout=layout, requires_grad=grad, nbytes=4 * sum(shape), zero=zero
    )


def gradient(index: int, *, zero: bool = False, failed: bool = False) -> GraphGradient:
    return GraphGradient(
        message=index,
        answer=index + 1,
        begin_ns=index * 1_000_000,
        end_ns=index * 1_000_000 + 1000,
        tensors=(tensor(3, zero=zero),),
        nbytes=12,
        retain_graph=False,
        failed=failed,
    )


def edge(index: int, sender: str, receiver: str, *gradients: GraphGradient, what: str = "job.f") -> GraphEdge:
    return GraphEdge(
        autograd_message_id=index,
        sender=sender,
        receiver=receiver,
        forward=index,
        answers=None,
        what=what,
        begin_ns=index * 1_000_000,
        end_ns=index * 1_000_000 + 1000,
        tensors=(tensor(3), tensor(2, grad=False)),
        nbytes=20,
        gradients=gradients,
    )


def graph(
    *edges: GraphEdge, workers: tuple[str, ...] = ("worker0", HOSTILE), **changes: object
) -> ContextGraph:
    passing = (
        Passing(
            message=2,
            source="worker0",
            destination=workers[-1],
            request=True,
            answers=None,
            what="job.bare",
            kind="PYTHON_CALL",
            begin_ns=2_000_000,
            end_ns=2_000_100,
            failed=False,
        ),
        Passing(
            message=3,
            source=workers[-1],
            destination="worker0",
            request=False,
            answers=2,
            what="job.bare",
            kind="PYTHON_RET",
            begin_ns=3_000_000,
            end_ns=3_000_100,
            failed=True,
        ),
    )
    fields: dict[str, object] = {
        "context_id": (1 << 48) + 3,
        "job": 0,
        "creator": "worker0",
        "workers": workers,
        "edges": edges,
        "missing": () if "backward_ns" in changes else tuple(edge for edge in edges if not edge.gradients),
        "passing": passing,
        "begin_ns": 1_000_000,
        "end_ns": 9_000_000,
        "backward_ns": 6_000_000,
        "cleanup": (20,),
    }
    return ContextGraph(**{**fields, **changes})  # type: ignore[arg-type]


def every_kind() -> ContextGraph:
    """An edge with a zero gradient, one with a failed one, one without any."""
    return graph(
        edge(1, "worker0", HOSTILE, gradient(7, zero=True), what=HOSTILE),
        edge(4, HOSTILE, "worker0", gradient(6, failed=True)),
        edge(5, "worker0", "worker0"),
    )
