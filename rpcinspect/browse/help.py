"""The text of the help: the keys of the pane one is in, then those that work everywhere.

In: the app. Out: text, made of the bindings, so that no key is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode

WIDTH = 16


def help_text(app: App[int]) -> str:
    """Returns the lines."""
    lines: list[str] = []
    node: DOMNode | None = app.focused
    while node is not None and node is not app:
        lines += _section(node, type(node).__name__)
        node = node.parent
    return "\n".join([*lines, *_section(app, "everywhere")])


def _section(node: DOMNode, title: str) -> list[str]:
    found = []
    for one in node._bindings.key_to_bindings.items():
        keys, bindings = one
        found += [(binding.key_display or keys, binding.description) for binding in bindings]
    by_about: dict[str, list[str]] = {}
    for key, about in found:
        if about:
            by_about.setdefault(about, []).append(key)
    lines = [f"  {', '.join(keys):<{WIDTH}}  {about}" for about, keys in by_about.items()]
    return [title, *lines, ""] if lines else []
