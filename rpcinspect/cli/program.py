"""Which commands there are, in the groups that the help shows, and what their help looks like.

In: the name of a command. Out: typer's command, made of the class in its module, which is imported only now:
its fields are the options, its text is the help.
"""

import inspect
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup

from rpcinspect.cli.gone import line_for
from rpcinspect.cli.guard import UsageMistake, guarded
from rpcinspect.cli.options import CommandClass

SETTINGS = {"help_option_names": ["-h", "--help"]}
FIRST, LAST = ("Arguments", "Options"), "Reading captures"
"""Sections of a command's help; an option says which it is in, if it is not in the second."""


class OneCommand(TyperCommand):
    """A command whose help has examples and exit codes."""

    made_of: type[CommandClass]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        old = line_for(self.name or "", args)
        if old is not None:
            typer.echo(f"rpcinspect: {old}", err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Returns arguments and options with what they are for, by the titles of the help's sections."""
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in FIRST}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                title = "Arguments" if argument else getattr(param, "rich_help_panel", None) or "Options"
                found.setdefault(title, []).append(record)
        return {title: found[title] for title in sorted(found, key=LAST.__eq__) if found[title]}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, records in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Examples"):
            for line in self.made_of.EXAMPLES:
                formatter.write(f"{'':>{formatter.current_indent}}rpcinspect {line}\n")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), what) for code, what in sorted(self.made_of.EXITS.items())])


class Group(TyperGroup):
    """Commands that are imported once they are named."""

    PACKAGE: ClassVar[str]
    GROUPS: ClassVar[Mapping[str, Sequence[str]]]
    """Title → names."""
    MODULES: ClassVar[Mapping[str, str]] = {}
    """Name → the module of the command's class, where that has not its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in self.GROUPS.values() for name in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            module = import_module(f"{self.PACKAGE}.{self.MODULES.get(cmd_name, cmd_name)}")
            found = getattr(module, f"{cmd_name.capitalize()}Command")
            if issubclass(found, Group):
                self.add_command(
                    found(
                        name=cmd_name,
                        help=found.__doc__,
                        no_args_is_help=True,
                        rich_markup_mode=None,
                        context_settings=SETTINGS,
                    )
                )
            else:
                self.add_command(made_of(found, cmd_name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names = self.list_commands(ctx)
        if args[0] not in names:  # it may be a mistyped one of these, which typer says of those that it has
            for name in names:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, names in self.GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self._brief(ctx, name)) for name in names])
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes nothing: groups of commands stand above the options."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\nRun a command with -h for its options, examples and exit codes.\n")

    def _brief(self, ctx: Any, name: str) -> str:
        """Returns the first sentence of a command's help."""
        text = " ".join((self.get_command(ctx, name).help or "").split())
        return text.partition(". ")[0].rstrip(".")


class Program(Group):
    """Group of all commands."""

    PACKAGE = "rpcinspect.cli"
    GROUPS: ClassVar = {
        "Look at messages and calls": ("decode", "browse"),
        "Ask about a whole run": (
            *("contexts", "graph", "latency", "rrefs"),
            *("devices", "disconnects", "profile", "findings"),
        ),
        "Compare two runs": ("diff",),
        "Replay": ("replay", "reproduce", "join", "leave"),
        "Record": ("record",),
        "Export": ("export",),
        "This machine": ("doctor",),
        "For coding agents": ("mcp",),
    }
    MODULES: ClassVar = dict.fromkeys(
        ("contexts", "latency", "rrefs", "devices", "disconnects", "profile"), "questions"
    )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.list_commands(ctx) and os.path.isfile(args[0]):
            import shlex  # not at each start

            from rpcinspect.fields.phrases import printable

            told = f"No such command '{args[0]}'. Did you mean: rpcinspect decode {shlex.join(args)}"
            ctx.fail(printable(told))
        return super().resolve_command(ctx, args)


def made_of(command: type[CommandClass], name: str) -> Any:
    """Returns typer's command whose options are the fields of a class: its own first, then inherited ones."""

    def execute(**given: Any) -> None:
        def run() -> int:
            asked = command(**given)
            for mistake in asked.mistakes():
                raise UsageMistake(mistake)
            return asked.run()

        raise typer.Exit(guarded(run))

    execute.__signature__ = inspect.Signature(_parameters(command))  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {**SETTINGS, **command.SETTINGS}
    app.command(name, cls=OneCommand, help=command.__doc__, context_settings=settings)(execute)
    made = typer.main.get_command(app)
    assert isinstance(made, OneCommand)
    made.made_of = command
    return made


def _parameters(command: type) -> list[inspect.Parameter]:
    fields = {field.name: field for field in msgspec.structs.fields(command)}
    names = dict.fromkeys(name for base in command.__mro__ for name in vars(base).get("__annotations__", ()))
    found = []
    for field in (fields[name] for name in names if name in fields):
        default = field.default
        if default is msgspec.NODEFAULT:
            made = field.default_factory is not msgspec.NODEFAULT
            default = field.default_factory() if made else inspect.Parameter.empty
        found.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type
            )
        )
    return found
