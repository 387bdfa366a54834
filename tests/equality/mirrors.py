"""The comparison the other way round, for tests that it finds the same."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.ids import IdMap
from rpcinspect.equality.rules import Rules


def mirrored(difference: Difference) -> Difference:
    """As the comparison the other way round finds it."""
    return replace(
        difference,
        path=difference.path if difference.b_path is None else difference.b_path,
        b_path=None if difference.b_path is None else difference.path,
        a_value=difference.b_value,
        b_value=difference.a_value,
        a_bits=difference.b_bits,
        b_bits=difference.a_bits,
    )


def mirrored_rules(rules: Rules) -> Rules:
    """The rules of the comparison the other way round."""
    other = {"missing": "extra", "extra": "missing"}
    return replace(
        rules,
        renames={b: a for a, b in rules.renames.items()},
        ignore=frozenset(other.get(name, name) for name in rules.ignore),
    )


def mirrored_ids(ids: IdMap) -> IdMap:
    """The same pairs seen from the other run."""
    other = IdMap()
    for kind, a, b in ids._journal:
        other.same(kind, b, a)
    return other
