"""The palette of all commands: every action and every view by a name, with a line of what it does.

In: what is typed. Out: commands that fit, for Textual's palette. Textual's own commands are not among them:
those that help here are actions of the app.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from rpcinspect.browse.keys import KeyHelp, keys_of

LEFT_OUT = ("command_palette",)
"""It is open already."""


class BrowsePalette(Provider):
    """Offers what keys do, those of the pane last."""

    def _offered(self) -> list[KeyHelp]:
        found = [one for one in keys_of(self.screen) if one.action not in LEFT_OUT]
        return sorted(found, key=lambda one: not one.group)

    async def discover(self) -> Hits:
        """Offers everything."""
        for one in self._offered():
            yield DiscoveryHit(_with_keys(Content(one.name), one), self._command(one), one.name, one.about)

    async def search(self, query: str) -> Hits:
        """Offers what fits, by its name or by what it does."""
        matcher = self.matcher(query)
        for one in self._offered():
            by_name, by_about = matcher.match(one.name), matcher.match(one.about) / 2
            if max(by_name, by_about) > 0:
                shown = _with_keys(matcher.highlight(one.name), one)
                yield Hit(max(by_name, by_about), shown, self._command(one), one.name, one.about)

    def _command(self, one: KeyHelp) -> Callable[[], Awaitable[bool]]:
        return partial(self.app.run_action, one.action, one.node)


def _with_keys(name: Content, one: KeyHelp) -> Content:
    """Returns a name with the keys that do the same."""
    return name + Content(f"   {'  '.join(one.keys)}").stylize("dim")
