"""Functions of the user's that are called with each message that a live worker gets, and that message.

In: `module:function`, and messages. Out: calls; what goes wrong in one is told once, and changes nothing.
Runs in live workers only.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from rpcinspect.replayer.workers.called_functions import context_text
from rpcinspect.replayer.workers.remote_pdb import CannotDebugError, DebugLink, RemotePdb


@dataclass
class ReceivedMessage:
    """A message that a live worker gets: what a hook is called with."""

    worker: str
    """Who gets it."""
    message: int | None
    """Its number in the capture; None for one that only live workers know, such as a call between two."""
    type: str
    """As `decode` shows it, envelopes included: `FORWARD_AUTOGRAD_REQ`."""
    sender: str | None
    """Who sent it; None where that is not known."""
    function: str | None
    """`module.name` of the function or operator that it calls."""
    context_id: int | None = None
    """The distributed autograd context, for `torch.distributed.autograd.get_gradients`."""
    args: tuple[Any, ...] = field(default=(), repr=False)
    """Of a call of Python: the very objects that the function gets."""
    kwargs: dict[str, Any] = field(default_factory=dict, repr=False)
    tensors: list[torch.Tensor] = field(default_factory=list, repr=False)
    """All tensors in it; of a BACKWARD_AUTOGRAD_REQ the gradients. Of what is no call of Python, copies."""
    stops: bool = field(default=False, repr=False)
    broken: bool = field(default=False, repr=False)
    """It was told which line makes NaN or Inf."""
    debugger: RemotePdb | None = field(default=None, repr=False)
    """That stopped there."""

    @property
    def label(self) -> str:
        """Returns the number, or what stands for it."""
        return "?" if self.message is None else f"#{self.message}"

    @property
    def text(self) -> str:
        """Returns the message in words."""
        parts = [self.type] if self.function else []
        parts += [f"from {self.sender}"] if self.sender else []
        parts += [] if self.context_id is None else [f"context {context_text(self.context_id)}"]
        return f"{self.function or self.type} ({', '.join(parts)})"


class Hooks:
    """The hooks of one live worker."""

    def __init__(self, names: Iterable[str], link: DebugLink) -> None:
        """Imports their modules. Raises `CannotDebugError`."""
        self._hooks = [(name, _function(name)) for name in names]
        self._link = link
        self._failed: set[str] = set()

    def call(self, message: ReceivedMessage) -> None:
        """Calls each hook with a message."""
        for name, hook in self._hooks:
            try:
                hook(message)
            except (Exception, SystemExit) as error:  # neither is the call's
                if name not in self._failed:
                    self._failed.add(name)
                    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
                    lines = traceback.format_exception(type(error), error, trace)
                    text = f"--hook {name} failed at {message.label}:\n{''.join(lines)}"
                    self._link.say({"say": "tell", "text": text})


def _function(name: str) -> Callable[[ReceivedMessage], object]:
    """Returns what `module:function` names. Raises `CannotDebugError`."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        raise CannotDebugError(f"--hook {name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise CannotDebugError(
            f"--hook {name}: {attribute} is no function, but of type {type(found).__name__}"
        )
    function: Callable[[ReceivedMessage], object] = found
    return function
