"""The hashes that were kept: a text file of them, and how those of now compare.

In and out: `Outputs`, of each subject the exit code and the hash of each question, in one file: a line with
the subject's name, then an indented line for each of its questions, all sorted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HEADER = """\
# What every view says of every capture, as hashes: `make golden` compares, GOLDEN_ARGS=--write accepts.
# Below each input: the question to rpcinspect, the exit code, the hash of all that is said and written.
"""

CONFLICT = ("<<<<<<<", "=======", ">>>>>>>")

Outputs = dict[str, dict[str, tuple[int, str]]]
"""Name of a subject → question → exit code and hash."""


class KeptError(Exception):
    """The file can't be taken for what it should be."""


def read(text: str) -> Outputs:
    """What a file keeps; `KeptError` if it has two answers to a question, as after a merge."""
    outputs: Outputs = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith(CONFLICT):
            raise KeptError(f"line {number}: a merge left both sides: take either, then GOLDEN_ARGS=--write")
        if not line.startswith(" "):
            questions = outputs.setdefault(line, {})
            continue
        try:
            question, code, digest = line.strip().rsplit(" ", 2)
            entry = int(code), digest
        except ValueError:
            raise KeptError(f"line {number}: neither an input nor a question, exit code and hash") from None
        if questions.setdefault(question, entry) != entry:
            raise KeptError(f"line {number}: a second answer to this question: GOLDEN_ARGS=--write")
    return outputs


def written(outputs: Outputs) -> str:
    """The file's text."""
    lines = [HEADER.rstrip("\n")]
    for name, questions in sorted(outputs.items()):
        lines.append(name)
        lines += [f" {question} {code} {digest}" for question, (code, digest) in sorted(questions.items())]
    return "\n".join(lines) + "\n"


@dataclass
class Comparison:
    """What differs, as (subject, question)."""

    changed: list[tuple[str, str]] = field(default_factory=list)
    new: list[tuple[str, str]] = field(default_factory=list)
    gone: list[tuple[str, str]] = field(default_factory=list)
    same: int = 0

    def differing(self) -> list[tuple[str, str]]:
        return sorted([*self.changed, *self.new, *self.gone])


def compare(kept: Outputs, now: Outputs) -> Comparison:
    """Of what was run now and what is kept of the same."""
    found = Comparison()
    for name in kept.keys() | now.keys():
        before, after = kept.get(name, {}), now.get(name, {})
        for question in before.keys() | after.keys():
            if question not in after:
                found.gone.append((name, question))
            elif question not in before:
                found.new.append((name, question))
            elif before[question] != after[question]:
                found.changed.append((name, question))
            else:
                found.same += 1
    return found


def told(found: Comparison, kept: Outputs, now: Outputs) -> list[str]:
    """Lines that name each output that differs, by subject."""
    by_subject: dict[str, list[str]] = defaultdict(list)
    words = {**dict.fromkeys(found.changed, "changed"), **dict.fromkeys(found.new, "new")}
    words |= dict.fromkeys(found.gone, "gone")
    for name, question in found.differing():
        before, after = (outputs.get(name, {}).get(question, (0, ""))[0] for outputs in (kept, now))
        word = words[name, question]
        codes = f"  (exit code {before} → {after})" if word == "changed" and before != after else ""
        by_subject[name].append(f"  {word:7}  {question}{codes}")
    return [line for name, rest in by_subject.items() for line in (name, *rest)]


def replaced(kept: Outputs, now: Outputs, gone: list[tuple[str, str]]) -> Outputs:
    """What is to be kept: that of now, where it was run, and the rest as it was."""
    outputs = {name: dict(questions) for name, questions in kept.items()}
    for name, questions in now.items():
        outputs.setdefault(name, {}).update(questions)
    for name, question in gone:
        del outputs[name][question]
    return {name: questions for name, questions in outputs.items() if questions}


def load(path: Path) -> Outputs:
    """The kept file, if there is one."""
    try:
        return read(path.read_text(encoding="utf-8")) if path.exists() else {}
    except KeptError as error:
        raise KeptError(f"{path}: {error}") from None
