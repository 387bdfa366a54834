"""How torch's autograd is made to send recorded gradients and to show those that come; contexts by their
numbers.

Gradients pass one autograd function, `RecordedFunction`. A node of it, a tap, stands before whatever is sent
and reports the gradients that arrive, as they are; a leaf behind whatever was received waits until its
gradient is due and returns the recorded one, bit for bit; a root begins a backward pass. A pass that another
worker began has no root here: its leaves hang at the tap whose gradient sets it off.

`ContextThreads`: torch binds a context to a thread and gives out ids in order. `PassWatch`: when a pass that
another worker began has ended. Runs in a played worker's process only (`agent/main.py`). Mirrors
torch/csrc/distributed/autograd/engine/dist_engine.cpp.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._C import _distributed_autograd as autograd_c

MAX_CONTEXTS = 1 << 20
"""Contexts that are made and dropped to come to a captured number."""
POLL_S = 0.005
ID_BITS = 48
"""Of a context's id, below that of the worker that made it."""
HOSTED_S = 10.0
"""For the request that brings another worker's context."""

Say = Callable[..., None]


class RecordedFunction(torch.autograd.Function):  # type: ignore[misc]
    """An autograd function with given outputs, and a callable that takes what arrives for them and returns a
    gradient for each input."""

    @staticmethod
    def forward(ctx: Any, outputs: Sequence[torch.Tensor], gradients: Any, *inputs: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.gradients = gradients
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        return (None, None, *ctx.gradients(grads))


def tokens(count: int) -> list[torch.Tensor]:
    """Returns what passes between two functions of ours, as an output or as a gradient."""
    return [torch.zeros(()) for _ in range(count)]


class JobThread:
    """Runs jobs one after the other; the caller waits until its job is done."""

    def __init__(self, *, borrowed: bool = False) -> None:
        """`borrowed`: it begins when a thread calls `work`."""
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        if not borrowed:
            threading.Thread(target=self.work, daemon=True).start()

    def do(self, job: Callable[[], Any]) -> Any:
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._jobs.put((job, done))
        result, error = done.get()
        if error is not None:
            raise error
        return result

    def begin(self, job: Callable[[], Any]) -> None:
        """Hands over a job that raises nothing, without waiting for it."""
        self._jobs.put((job, queue.SimpleQueue()))

    def end(self) -> None:
        self._jobs.put(None)

    def work(self) -> None:
        """Runs jobs until `end` is called."""
        while (one := self._jobs.get()) is not None:
            job, done = one
            try:
                done.put((job(), None))
            except BaseException as error:
                done.put((None, error))


class ContextThreads:
    """The autograd contexts in which something is sent, each in a thread of its own."""

    def __init__(self, worker_id: int) -> None:
        self._own = worker_id
        self.wanted: frozenset[int] = frozenset()
        """Those that something will be sent in."""
        self.threads: dict[int, JobThread] = {}
        self._next = JobThread()
        self._changed = threading.Condition()

    def host(self, context_id: int) -> None:
        """Lends the calling thread, in which torch has set a context that another worker made, to whatever is
        to be sent there; until the context is released."""
        thread = JobThread(borrowed=True)
        with self._changed:
            self.threads[context_id] = thread
            self._changed.notify_all()
        thread.work()

    def thread(self, context_id: int) -> JobThread:
        """The thread of a context; makes it, and those that torch numbers before it. Those of other workers
        come by a request, see `host`."""
        if context_id >> ID_BITS != self._own:
            with self._changed:
                if self._changed.wait_for(lambda: context_id in self.threads, HOSTED_S):
                    return self.threads[context_id]
            raise RuntimeError(f"no message has brought the context {context_id} here")
        for _ in range(MAX_CONTEXTS):
            if context_id in self.threads:
                return self.threads[context_id]
            made = self._next.do(lambda: autograd_c._new_context()._context_id())
            if made in self.wanted:
                self.threads[made], self._next = self._next, JobThread()
            else:
                self._next.do(partial(autograd_c._release_context, made))
        raise RuntimeError(f"the context {context_id} can't be made here")

    def release(self, context_id: int) -> None:
        thread = self.threads.pop(context_id, None)
        if thread is None:
            return  # nothing could be sent there
        thread.do(lambda: autograd_c._release_context(context_id))
        thread.end()


class PassWatch:
    """Tracks which backward passes run, and reports the end of those that other workers began.

    torch says only how many there are. Those that this worker began are known, and those that can't have
    ended yet: a gradient must still leave, or come. What is missing at the number has ended.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._own: set[int] = set()
        self._others: dict[int, bool] = {}
        """Context → whether all its gradients have left."""
        self._sent: dict[int, set[int]] = defaultdict(set)
        """Context → what was sent, for which gradients come."""
        self._come: dict[int, set[int]] = defaultdict(set)
        """The same, of those that have come in this pass."""
        self._missing_before: set[int] = set()
        threading.Thread(target=self._work, daemon=True).start()

    def sent(self, context: int, edge: int) -> None:
        """A message went out whose gradients will come."""
        with self._lock:
            self._sent[context].add(edge)

    def came(self, context: int, edge: int) -> None:
        """Gradients came for what was sent; if no pass is under way, they have begun one."""
        with self._lock:
            if context not in self._own:
                self._others.setdefault(context, False)
            self._come[context].add(edge)

    def left(self, context: int, *, last: bool) -> None:
        """A gradient was given to torch; `last`: no more leave in this pass."""
        with self._lock:
            if context in self._others:
                self._others[context] = last

    def own(self, context: int) -> None:
        """Notes that this worker has begun a pass."""
        with self._lock:
            self._own.add(context)
            self._come[context] = set()

    def ended(self, context: int) -> None:
        """Notes that this worker's pass has ended."""
        with self._lock:
            self._own.discard(context)
            self._come[context] = set()

    def forget(self, context: int) -> None:
        """The context is gone."""
        with self._lock:
            self._others.pop(context, None)
            self._sent.pop(context, None)
            self._come.pop(context, None)

    def _work(self) -> None:
        while True:
            time.sleep(POLL_S)
            with self._lock:
                waiting = any(self._others.values())
            if waiting:
                self._look()

    def _look(self) -> None:
        running = int(autograd_c._get_debug_info()["num_current_backward_passes"])
        with self._lock:
            may = {c for c, last in self._others.items() if last and self._sent[c] <= self._come[c]}
            over = may if len(self._own) + len(self._others) - running >= len(may) else set()
            # Twice, since a pass of our own may end between the two numbers.
            ended, self._missing_before = over & self._missing_before, over
            for context in ended:
                del self._others[context]
                self._come[context] = set()
        for context in ended:
            self._say({"said": "pass", "context": context, "error": None})
