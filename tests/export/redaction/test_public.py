"""What is public, and that what merely looks so is not."""

from __future__ import annotations

import re

import pytest

from rpcinspect.export.redaction.public import DEVICE, OPERATOR, PHRASES, SCHEMA, is_public

KNOWN = """
    builtins torch torch._utils torch.distributed.rpc.internal torch.nn.modules.linear collections os.path
    numpy.core.multiarray subprocess dill datetime
"""
OWN = """
    __main__ acme acme.torch torchacme torch.acme torch.acme.nn my.builtins builtin
    code code.train trace queue.jobs re.secret calendar csv site
"""


@pytest.mark.parametrize("module", KNOWN.split())
def test_modules_that_everybody_knows(module: str) -> None:
    assert is_public(module)


@pytest.mark.parametrize("module", ["", *OWN.split()])
def test_modules_of_somebody(module: str) -> None:
    assert not is_public(module)


def test_devices_operators_and_schemas() -> None:
    assert DEVICE.fullmatch(b"cuda:11")
    assert not DEVICE.fullmatch(b"cuda:secret")
    assert not DEVICE.fullmatch(b"rack:1")
    assert OPERATOR.fullmatch(b"torch.ops.aten.add")
    assert not OPERATOR.fullmatch(b"torch.ops.acme.add")
    schema = b"aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert SCHEMA.fullmatch(schema)
    assert not SCHEMA.fullmatch(b"acme::add(Tensor self) -> Tensor")
    assert not SCHEMA.fullmatch(schema + b"; my secret")


def test_phrases_hold_no_word_of_others() -> None:
    """Nothing in them matches any number of letters that somebody chose."""
    free = re.findall(rb"\\w[+*]|\[\^[^\]]*\][+*]|\.[+*]", PHRASES)
    assert free == []
