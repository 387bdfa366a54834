from __future__ import annotations

import pytest

from rpcinspect.rpc.command import ScriptCall


@pytest.mark.parametrize(
    ("schema", "qualified_name", "expected"),
    [
        (
            "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
            "torch.ops.aten.add",
            "aten::add.Scalar",
        ),
        ("aten::relu(Tensor self) -> (Tensor)", "torch.ops.aten.relu", "aten::relu"),
        (None, "__torch__.__mp_main__.sfun", "__torch__.__mp_main__.sfun"),
    ],
    ids=["overload", "1.8", "TorchScript"],
)
def test_function(schema: str | None, qualified_name: str, expected: str) -> None:
    assert ScriptCall(args=(), schema=schema, qualified_name=qualified_name).function == expected
