"""Vectors: messages of TorchScript, as payloads of SCRIPT_CALL."""

from __future__ import annotations

from tests.fuzz.model.forms import Vector
from tests.fuzz.model.script_values import CALL, call, listed, name, number, payload, tensor, text

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
VIEW = "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)"


def operator(schema: str, *args: bytes) -> Vector:
    """A call of an operator."""
    qualified = "torch.ops." + schema.partition("(")[0].partition(".")[0].replace("::", ".")
    return payload(*args, text(schema), text(qualified)), CALL, "nothing"


def function(qualified: str, *args: bytes, decision: str = "names") -> Vector:
    """A call of a compiled function."""
    return payload(*args, text(qualified)), CALL, decision


def value(given: bytes) -> Vector:
    """As an argument of the user's compiled function."""
    return function("__torch__.job.scripted", given, decision="module")


SCRIPT: dict[str, Vector] = {
    "an element type that torch does not have": operator(VIEW, tensor(7), number(64)),
    "an element type below 0": operator(VIEW, tensor(7), number(-1)),
    "too few arguments": operator(ADD, tensor(0)),
    "a number for a tensor": operator(ADD, number(1), number(2), number(1)),
    "a view outside of its storage": operator(
        "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) "
        "-> Tensor(a)",
        *(tensor(0), *(call("torch.jit._pickle.build_intlist", listed([number(1 << 20)])),) * 2, b"N"),
    ),
    "a file that is written": operator("aten::save(t item, str filename) -> ()", number(1), text("/tmp/x")),
    "a file that is mapped": operator(
        "aten::from_file(str filename, bool? shared=None, int? size=0, *, ScalarType? dtype=None, "
        "Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        *(text("/etc/hostname"), b"N", number(0), *(b"N",) * 4),
    ),
    "an operator of another library": operator("prim::PythonOp() -> ()"),
    "a function of a library": function("__torch__.canary.scripted", number(1)),
    "a function of nobody": function("os.system", text("x")),
    "an object of a library's class": value(name("__torch__.canary.Thing") + b")\x81}X\x01\0\0\0xK\x01sb"),
    "an object of one of torch's C++ classes": value(
        name("__torch__.torch.classes.quantized.LinearPackedParamsBase") + b")\x81)b"
    ),
    "a name for torch's resolver": value(name("os.system") + b")R"),
    "a number in a function's place": value(name("torch.device") + b"0K\x00" + text("cpu") + b"\x85R"),
    "a tensor's storage": value(call("torch._utils._rebuild_tensor_v2", *(b"N",) * 6)),
    "a type of a thousand levels": value(
        call("torch.jit._pickle.restore_type_tag", listed([]), text("List[" * 1000 + "int" + "]" * 1000))
    ),
    "a type that is a class": value(
        call("torch.jit._pickle.restore_type_tag", listed([]), text("List[__torch__.canary.Thing]"))
    ),
    "values of a thousand levels": value(b"(" * 1000 + b"t" * 1000),
}
