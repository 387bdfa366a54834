"""Commands: what a message asks for or answers, once its envelopes are off. One structure per message type.

Values are trees of `pickles.tree`; tensors in them are indexes into the message's tensor list. Python pickles
are carried whole, as bytes. `command_codec` reads and writes them.
Class and field names are upstream's: torch/csrc/distributed/rpc/{script_call,python_call,rref_proto,…}.h and
torch/csrc/distributed/autograd/rpc_messages/*.h.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from rpcinspect.pickles.tree import Value
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import ForkId, RRefId, WorkerId

# --- calls --------------------------------------------------------------------------------------------------


class _ScriptCommand(Struct, frozen=True, kw_only=True):
    """A builtin operator or a TorchScript function, with its full list of arguments."""

    args: tuple[Value, ...]
    schema: str | None
    """Of a builtin operator: `aten::add.Scalar(Tensor self, …) -> Tensor`; its text differs between
    releases."""
    qualified_name: str
    """`__torch__.module.function`; of a builtin operator `torch.ops.aten.add`."""
    is_async_execution: bool = False

    @property
    def function(self) -> str:
        """Returns the operator with its overload, `aten::add.Scalar`, or the qualified name."""
        return self.qualified_name if self.schema is None else self.schema.partition("(")[0]


class ScriptCall(_ScriptCommand, frozen=True, kw_only=True):
    """SCRIPT_CALL."""


class PythonCall(Struct, frozen=True):
    """PYTHON_CALL: a pickled PythonUDF."""

    serialized_py_obj: bytes
    is_async_execution: bool


class ScriptRemoteCall(_ScriptCommand, frozen=True, kw_only=True):
    """SCRIPT_REMOTE_CALL: as ScriptCall, the result stays with the callee under `ret_rref_id`."""

    ret_rref_id: RRefId
    ret_fork_id: ForkId


class PythonRemoteCall(Struct, frozen=True, kw_only=True):
    """PYTHON_REMOTE_CALL: as PythonCall, the result stays with the callee under `ret_rref_id`."""

    tensors: tuple[int, ...]
    """Indexes into the message's tensor list, as listed beside the pickle."""
    serialized_py_obj: bytes
    ret_rref_id: RRefId
    ret_fork_id: ForkId
    is_async_execution: bool


class _Fetch(Struct, frozen=True):
    """The value of an RRef is wanted."""

    from_worker_id: WorkerId
    """As upstream calls it. What torch writes here is the id of the owner, who receives the call."""
    rref_id: RRefId


class ScriptRRefFetchCall(_Fetch, frozen=True):
    """SCRIPT_RREF_FETCH_CALL."""


class PythonRRefFetchCall(_Fetch, frozen=True):
    """PYTHON_RREF_FETCH_CALL."""


# --- answers ------------------------------------------------------------------------------------------------


class ScriptResp(Struct, frozen=True):
    """SCRIPT_RET: the bare result."""

    value: Value


class PythonResp(Struct, frozen=True):
    """PYTHON_RET: the pickled result, or a pickled RemoteException."""

    serialized_py_obj: bytes


class ScriptRRefFetchRet(Struct, frozen=True):
    """SCRIPT_RREF_FETCH_RET."""

    values: tuple[Value, ...]
    """One value in every honest answer."""


class PythonRRefFetchRet(Struct, frozen=True):
    """PYTHON_RREF_FETCH_RET."""

    tensors: tuple[int, ...]
    serialized_py_obj: bytes


class ExceptionResponse(Struct, frozen=True):
    """EXCEPTION: a failure outside of Python user code, as text."""

    text: bytes
    """Meant to be UTF-8."""


# --- RRefs --------------------------------------------------------------------------------------------------


class RemoteRet(Struct, frozen=True):
    """REMOTE_RET: the owner has made the RRef of a remote call."""

    rref_id: RRefId
    fork_id: ForkId


class RRefUserDelete(Struct, frozen=True):
    """RREF_USER_DELETE: a user's fork is gone."""

    rref_id: RRefId
    fork_id: ForkId


class RRefForkRequest(Struct, frozen=True):
    """RREF_FORK_REQUEST: a child tells the owner of its fork."""

    rref_id: RRefId
    fork_id: ForkId


class RRefChildAccept(Struct, frozen=True):
    """RREF_CHILD_ACCEPT: a child tells its parent that the owner knows of it."""

    fork_id: ForkId


class RRefAck(Struct, frozen=True):
    """RREF_ACK: answers the three above."""


# --- distributed autograd -----------------------------------------------------------------------------------


class PropagateGradientsReq(Struct, frozen=True):
    """BACKWARD_AUTOGRAD_REQ: gradients for one edge, in the opposite direction of the forward message."""

    autograd_metadata: AutogradMetadata
    grads: tuple[int, ...]
    """Indexes into the message's tensor list."""
    retain_graph: bool


class PropagateGradientsResp(Struct, frozen=True):
    """BACKWARD_AUTOGRAD_RESP."""


class CleanupAutogradContextReq(Struct, frozen=True):
    """CLEANUP_AUTOGRAD_CONTEXT_REQ: the context has ended."""

    context_id: int


class CleanupAutogradContextResp(Struct, frozen=True):
    """CLEANUP_AUTOGRAD_CONTEXT_RESP."""


class RRefBackwardReq(Struct, frozen=True):
    """RREF_BACKWARD_REQ: the owner is to start a backward pass from the RRef's value."""

    rref_id: RRefId
    autograd_context_id: int
    retain_graph: bool


class RRefBackwardResp(Struct, frozen=True):
    """RREF_BACKWARD_RESP."""


class UnknownCommand(Struct, frozen=True):
    """A payload of an unknown type, or one that could not be read: kept whole."""

    message_type: int
    payload: bytes


Command: TypeAlias = (
    ScriptCall
    | ScriptResp
    | PythonCall
    | PythonResp
    | ScriptRemoteCall
    | PythonRemoteCall
    | RemoteRet
    | ScriptRRefFetchCall
    | PythonRRefFetchCall
    | ScriptRRefFetchRet
    | PythonRRefFetchRet
    | RRefUserDelete
    | RRefForkRequest
    | RRefChildAccept
    | RRefAck
    | PropagateGradientsReq
    | PropagateGradientsResp
    | CleanupAutogradContextReq
    | CleanupAutogradContextResp
    | RRefBackwardReq
    | RRefBackwardResp
    | ExceptionResponse
    | UnknownCommand
)
