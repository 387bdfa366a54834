"""Who waits in a circle: the strongly connected parts of a graph, by Tarjan's algorithm, in linear time.

In: who waits for whom. Out: a number for each who waits or is waited for; those in one circle have the same.
Without recursion: a chain of waiting workers may be longer than Python's stack.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def circles(waits: Mapping[T, Collection[T]]) -> dict[T, int]:
    """See the module's text."""
    order: dict[T, int] = {}
    low: dict[T, int] = {}
    part: dict[T, int] = {}
    open_: list[T] = []
    """Visited, and in no part yet."""
    for start in waits:
        if start in order:
            continue
        order[start] = low[start] = len(order)
        open_.append(start)
        path: list[tuple[T, Iterator[T]]] = [(start, iter(waits[start]))]
        while path:
            node, others = path[-1]
            other = next((one for one in others if one not in part), None)
            if other is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == order[node]:
                    number = len(part)
                    while node not in part:
                        part[open_.pop()] = number
            elif other in order:
                low[node] = min(low[node], order[other])
            else:
                order[other] = low[other] = len(order)
                open_.append(other)
                path.append((other, iter(waits.get(other, ()))))
    return part
