"""Makes the site of the documentation, and the pages of it that the program itself knows best.

In: the commands with their options, the table of fields; the pages of docs/ and those beside README.md;
mkdocs.yml, which says where each stands. Out: docs/reference/, which is committed for those who read the
repository; and site/, by Zensical.

    python docs/make.py              # both
    python docs/make.py reference    # docs/reference/ only

A link in a page is one for readers of the repository. What is neither a page nor a picture, such as a source
file, is copied into the site as text; where a link leads to a folder, its path is written out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from rpcinspect.cli.program import FIRST, LAST, SETTINGS, Group, Program  # noqa: E402  (it lies in the folder named above)
from rpcinspect.fields.table import ALIASES, FIELDS  # noqa: E402

REFERENCE = HERE / "reference"
STAGED = ROOT / "build" / "docs"
MOVED = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "captures/README.md": "captures.md",
    "captures/reports/README.md": "captures-reports.md",
    "captures/attacks/README.md": "captures-attacks.md",
}
"""Pages outside of docs/: where the site has them."""

FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\[(?:[^\]\n]|\]\n)*\])\(([^)\s]+)\)")


def main() -> int:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in reference().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    if sys.argv[1:] == ["reference"]:
        return 0
    stage(STAGED)
    zensical = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    return subprocess.run(zensical, cwd=ROOT, check=False).returncode


def reference() -> dict[str, str]:
    """The pages of docs/reference/, by name."""
    return {"commands.md": commands(), "fields.md": fields()}


def commands() -> str:
    program = Program(name="rpcinspect", context_settings=SETTINGS)
    lines = [
        "# Commands",
        "",
        "Each command with its options, as `-h` after it prints them. `rpcinspect --version` prints the",
        "version, `--install-completion` installs completion for the shell, `--show-completion` shows it.",
    ]
    for title, names in program.GROUPS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += one_command(program, name)
    lines += reading(program)
    return "\n".join(lines) + "\n"


def one_command(group: Group, name: str, before: str = "") -> Iterator[str]:
    """The section of a command; of a group of commands, those of each."""
    command = group.get_command(None, name)
    name = f"{before}{name}"
    if isinstance(command, Group):
        for inner in command.list_commands(None):
            yield from one_command(command, inner, f"{name} ")
        return
    context = command.context_class(command, info_name=f"rpcinspect {name}", help_option_names=[])
    yield from ("", f"### {name}", "", plain(command.help))
    yield from ("", "```", " ".join(["rpcinspect", name, *command.collect_usage_pieces(context)]), "```")
    tables = command.sections(context)
    for title, rows in tables.items():
        if title != LAST:
            yield from table(title.removesuffix("s") if title in FIRST else title, rows)
    if LAST in tables:
        yield from ("", f"Also the options for [{LAST.lower()}](#{LAST.lower().replace(' ', '-')}).")
    yield from ("", "```", *(f"rpcinspect {line}" for line in command.made_of.EXAMPLES), "```")
    yield from ("", "| Exit code | |", "|---|---|")
    yield from (f"| {code} | {plain(what)} |" for code, what in sorted(command.made_of.EXITS.items()))


def reading(program: Program) -> Iterator[str]:
    """The section of the options that every command has that reads captures."""
    command = program.get_command(None, "decode")
    yield from ("", f"## {LAST}", "", "Options of each command that reads captures, beside its own:")
    yield from table("Option", command.sections(command.context_class(command))[LAST])


def table(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    yield from ("", f"| {title} | |", "|---|---|")
    for what, about in rows:
        # Of several values GitHub and Python-Markdown would each show another thing in the code of a table.
        names, _, values = what.partition(" <") if "|" in what else (what, "", "")
        shown = f"`{names}`" + "".join(f" `{value}`" for value in values.rstrip(">").split("|") if value)
        yield f"| {shown} | {plain(about)} |"


def plain(text: str) -> str:
    """A text of the help that Markdown takes for nothing else."""
    words = " ".join(text.split())
    return words.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def fields() -> str:
    others = {name: alias for alias, name in ALIASES.items()}
    lines = [
        "# Fields",
        "",
        "What a [filter](../filter.md) may ask of a message, as `rpcinspect decode --fields` prints it.",
        "",
        "| field | kind | what it is | example |",
        "|---|---|---|---|",
    ]
    for field in FIELDS:
        names = f"`{field.name}`" + (f", `{others[field.name]}`" if field.name in others else "")
        lines.append(f"| {names} | {field.kind.name} | {field.about} | `{field.example}` |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Every page of the repository, and its place in the site."""
    found = {path: path.relative_to(HERE).as_posix() for path in sorted(HERE.rglob("*.md"))}
    return found | {ROOT / name: place for name, place in MOVED.items()}


def stage(folder: Path) -> None:
    """Puts all pages, with what they link to, into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "pictures", folder / "pictures", ignore=shutil.ignore_patterns("*.py"))
    shutil.copytree(HERE / "style", folder / "style")
    for path, place in pages().items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(for_site(path, folder), encoding="utf-8")


def for_site(page: Path, folder: Path) -> str:
    """A page with links to where the site has what it links to."""
    pieces = FENCED.split(page.read_text(encoding="utf-8"))
    return "".join(
        piece if odd else LINK.sub(lambda link: linked(link, page, folder), piece)
        for piece, odd in zip(pieces, [False, True] * len(pieces), strict=False)
    )


def linked(link: re.Match[str], page: Path, folder: Path) -> str:
    """A link of a page as the site needs it."""
    text, target = link.groups()
    if re.match(r"[a-z]+:|#", target):
        return link[0]
    name, sign, anchor = target.partition("#")
    path = (page.parent / name).resolve()
    own = pages()
    if path.is_dir():
        return f"{text.strip('[]')} (`{path.relative_to(ROOT)}`)"
    if path in own:
        place = own[path]
    elif path.is_relative_to(HERE):
        place = path.relative_to(HERE).as_posix()
    else:
        place = f"files/{path.relative_to(ROOT)}.txt"
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / place)
    there = os.path.relpath(place, Path(own[page]).parent)
    return f"{text}({there}{sign}{anchor})"


if __name__ == "__main__":
    sys.exit(main())
