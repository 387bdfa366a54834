"""`rpcinspect doctor`: what works on this machine, and what the rest needs."""

from typing import Annotated, ClassVar, Literal

from rpcinspect.cli.options import CommandClass, OutputOption, option


class DoctorCommand(CommandClass, frozen=True, kw_only=True):
    """Show which commands work on this machine, and what others need."""

    EXAMPLES: ClassVar = (
        "doctor",
        "doctor --interpreter ./venv/bin/python",
        "doctor --format json",
    )
    EXITS: ClassVar = {
        0: "shown, whatever is missing",
        2: "wrong options, or the output can't be written",
        130: "interrupted",
    }

    interpreter: Annotated[
        str | None, option("--interpreter PY", "Look for torch in this Python, that of your job.")
    ] = None
    format: Annotated[Literal["table", "json"], option("--format", "Write text, or one document.")] = "table"
    output: OutputOption = None

    def run(self) -> int:
        """Looks and shows; returns the exit code."""
        from rpcinspect.cli.examining import examined

        return examined(self)
