"""What is said of contexts, edges and gradients."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.views.graph_words import (
    edge_words,
    gradient_words,
    gradients_words,
    graph_title,
    passing_words,
    tensor_words,
    tensors_words,
)
from tests.views.graphs import edge, every_kind, gradient, graph, tensor


def test_tensors() -> None:
    assert tensor_words(tensor(3, 4)) == "float32[3,4]"
    assert tensor_words(tensor(3, layout="sparse_coo")) == "float32[3] sparse_coo"
    assert tensors_words([tensor(1)] * 6) == "float32[1], float32[1], float32[1], float32[1] and 2 more"


def test_edges_name_the_tensors_that_require_grad() -> None:
    assert edge_words(edge(1, "a", "b")) == "edge 0:1  job.f  float32[3], 20 bytes"
    assert edge_words(replace(edge(7, "b", "a"), answers=6)) == "edge 0:7  #6 returns  float32[3], 20 bytes"


def test_gradients_say_what_is_striking() -> None:
    its = edge(1, "a", "b")
    assert gradient_words(its, gradient(5)) == "gradient of 0:1  float32[3], 12 bytes"
    assert gradient_words(its, gradient(5, zero=True)).endswith("  all zeros")
    assert gradient_words(its, gradient(5, failed=True)).endswith("  ✗ answered by an error")
    half = replace(gradient(5), tensors=(tensor(3), tensor(3, zero=True)), retain_graph=True)
    assert gradient_words(its, half).endswith("  1 of 2 all zeros  retain graph")


def test_a_title_counts() -> None:
    assert graph_title(every_kind(), several_jobs=True) == (
        "context 1:3 of job 0, made by worker0: 2 workers, 3 edges, gradients for 2 of 3, cleanup #20, 8 ms"
    )


def test_a_context_without_a_pass_expects_nothing() -> None:
    idle = graph(edge(1, "worker0", "b"), backward_ns=None, cleanup=())
    assert gradients_words(idle) == "no backward pass seen"
    assert "no cleanup seen" in graph_title(idle)
    assert gradients_words(graph(backward_ns=None)) == "nothing to differentiate"
    assert idle.expected == 0


def test_other_messages() -> None:
    call, answer = every_kind().passing
    assert passing_words(call) == "job.bare, no edge"
    assert passing_words(answer) == "#2 ✗ answered by an error"
    assert passing_words(replace(answer, failed=False)) == "#2 returns, no edge"
    assert passing_words(replace(call, kind="RREF_BACKWARD_REQ", what="RREF_BACKWARD_REQ")) == (
        "RREF_BACKWARD_REQ"
    )
