"""Options for comparing two runs, which `diff` and `browse --diff` have.

In: values from the command line. Out: which runs are compared, and what counts as a difference.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.options import AtolOption, CaptureOptions, RtolOption, ToleranceOption, option

if TYPE_CHECKING:
    from rpcinspect.equality.rules import Rules


class ComparisonOptions(CaptureOptions, frozen=True, kw_only=True):
    """What is compared, and how."""

    contexts: Annotated[
        list[str], option("--context ID", "Compare only this autograd context; repeat it for B's.")
    ] = []
    tolerance: ToleranceOption = False
    rtol: RtolOption = None
    atol: AtolOption = None
    ignore: Annotated[
        list[str],
        option(
            "--ignore WHAT,…",
            "Do not count: device, device-map, latency, form, requires-grad, zero-sign, nan-payload, "
            "profile-events, error, missing, extra.",
        ),
    ] = []
    strict: Annotated[
        bool, option("--strict", "Also count form, order of independent calls, agents' own calls.")
    ] = False
    renames: Annotated[
        list[str], option("--rename OLD=NEW", "Match worker OLD of A with NEW of B; repeatable.")
    ] = []

    def inputs(self) -> list[str]:
        return [path for file in self.files for path in captures_of(file)]

    def rules(self) -> "Rules":
        """Returns what counts as a difference."""
        from rpcinspect.cli.arguments import names, renames, rules
        from rpcinspect.equality.rules import IGNORABLE

        ignore = frozenset(names(self.ignore))
        if ignore - IGNORABLE.keys():
            (name, *_), known = sorted(ignore - IGNORABLE.keys()), ", ".join(sorted(IGNORABLE))
            raise UsageMistake(f"--ignore {name}: these can be ignored: {known}")
        return rules(
            self.rtol,
            self.atol,
            by_dtype=self.tolerance,
            ignore=ignore,
            strict=self.strict,
            renames=renames(self.renames),
        )

    def context_ids(self) -> list[int | None]:
        """Returns the contexts that are compared: a's, then b's."""
        from rpcinspect.cli.arguments import context_id

        return [context_id(context) for context in self.contexts]

    def comparing(self) -> list[str]:
        """Returns the options for comparing, as words."""
        words = [f"--ignore={','.join(self.ignore)}"] if self.ignore else []
        words += [f"--context={context}" for context in self.contexts]
        words += [f"--rename={rename}" for rename in self.renames]
        words += ["--tolerance"] if self.tolerance else []
        words += [f"--rtol={self.rtol}"] if self.rtol is not None else []
        words += [f"--atol={self.atol}"] if self.atol is not None else []
        return words + (["--strict"] if self.strict else [])

    def runs_mistakes(self) -> Iterator[str]:
        """Yields what is wrong with what is to be compared, each in one line."""
        if len(self.files) > 2:
            yield "two runs can be compared: give A and B; several captures of one run as A1,A2"
        if len(self.files) == 1 and len(self.contexts) != 2:
            yield "name a second run to compare with, or two contexts of this one: --context ID --context ID"
        if len(self.contexts) > 2:
            yield "--context can be given twice: the first is a's, the second b's"


def captures_of(file: str) -> tuple[str, ...]:
    """Returns the captures of one run, separated by commas; an existing file may have commas in its name."""
    if "," not in file or os.path.exists(file):
        return (file,)
    return tuple(part for part in file.split(",") if part)
