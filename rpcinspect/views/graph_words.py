"""How the views of an autograd graph name things: tensors, edges, gradients, what a context came to.

In: parts of a `ContextGraph`. Out: short printable text.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.fields.phrases import amount, counted, duration, packed, printable, shorten_middle, some
from rpcinspect.run.graph import ContextGraph, GraphEdge, GraphGradient, GraphTensor, Passing

MAX_TENSORS = 4
MAX_WHAT = 60


def tensor_words(tensor: GraphTensor) -> str:
    """`float32[3,4]`, with what is not usual."""
    words = f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"
    return words if tensor.layout == "strided" else f"{words} {tensor.layout}"


def tensors_words(tensors: Sequence[GraphTensor]) -> str:
    """Returns the first few tensors in words."""
    return some([tensor_words(tensor) for tensor in tensors], MAX_TENSORS)


def what_words(what: str) -> str:
    """A function or a kind of message, cut."""
    return shorten_middle(printable(what), MAX_WHAT)


def edge_words(edge: GraphEdge) -> str:
    """Returns the edge's id, its call or answer, and the tensors that require grad."""
    grads = [tensor for tensor in edge.tensors if tensor.requires_grad]
    what = what_words(edge.what) if edge.answers is None else f"#{edge.answers} returns"
    return f"edge {packed(edge.autograd_message_id)}  {what}  {tensors_words(grads)}, {amount(edge.nbytes)}"


def gradient_words(edge: GraphEdge, gradient: GraphGradient) -> str:
    """Returns the gradient's edge, its tensors, and a remark where there is one."""
    words = [
        f"gradient of {packed(edge.autograd_message_id)}",
        f"{tensors_words(gradient.tensors)}, {amount(gradient.nbytes)}",
    ]
    zeros = sum(tensor.zero for tensor in gradient.tensors)
    if zeros:
        words.append("all zeros" if gradient.zero else f"{zeros} of {len(gradient.tensors)} all zeros")
    words += ["retain graph"] if gradient.retain_graph else []
    words += ["✗ answered by an error"] if gradient.failed else []
    return "  ".join(words)


def passing_words(message: Passing) -> str:
    """A message that makes no edge."""
    if message.kind == "BACKWARD_AUTOGRAD_REQ":
        return "gradient of an edge that was not captured"
    if not message.request:
        answered = "" if message.answers is None else f"#{message.answers} "
        return f"{answered}{'✗ answered by an error' if message.failed else 'returns, no edge'}"
    if message.what == message.kind:
        return message.kind
    return f"{what_words(message.what)}, no edge"


def graph_title(graph: ContextGraph, several_jobs: bool = False) -> str:
    """Returns a line about a context."""
    job = f" of job {graph.job}" if several_jobs else ""
    words = [
        f"context {packed(graph.context_id)}{job}, made by {printable(graph.creator)}: "
        + counted(len(graph.workers), "worker"),
        counted(len(graph.edges), "edge"),
        gradients_words(graph),
        f"cleanup {', '.join(f'#{index}' for index in graph.cleanup)}"
        if graph.cleanup
        else "no cleanup seen",
        duration(graph.end_ns - graph.begin_ns),
    ]
    return ", ".join(words)


def gradients_words(graph: ContextGraph) -> str:
    """How many edges got a gradient."""
    if graph.backward_ns is None:
        return "no backward pass seen" if graph.edges else "nothing to differentiate"
    return f"gradients for {graph.came:,} of {graph.expected:,}"
