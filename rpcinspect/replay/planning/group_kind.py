"""Whether captured groups were static or dynamic; live workers form a dynamic one in any case.

In: exchanges. Out: the kinds of the groups, as their agents' own calls tell them. In a static group
(`init_rpc` with `world_size`) agents gather when they begin and end, in a dynamic one they tell each other
who joins and leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from rpcinspect.run.exchanges import Exchange

GroupKind: TypeAlias = Literal["static", "dynamic"]

GATHERS = ("torch.distributed.rpc.api._gather_to_leader", "torch.distributed.rpc.api._broadcast_to_followers")
JOINS = "torch.distributed.rpc._utils._update_group_membership"
LIVE: GroupKind = "dynamic"
"""What live workers form: nobody needs be rank 0, or wait for all others, and played workers can join."""


def group_kinds(calls: Iterable[Exchange]) -> tuple[GroupKind, ...]:
    """The kinds of the captured jobs' groups, each once; empty if the capture does not show it."""
    dynamic, static = set[int](), set[int]()
    for call in calls:
        if call.control and call.function == JOINS:
            dynamic.add(call.job)
        elif call.control and call.function in GATHERS:
            static.add(call.job)
    kinds: list[GroupKind] = ["static"] if static - dynamic else []
    return (*kinds, "dynamic") if dynamic else tuple(kinds)
