"""What `rpcinspect record` does: runs a command, records the RPC of every process in it, and says what was
recorded.

In: the options of `record`. Out: the exit code of the command. Lines of ours go to standard error, before the
command starts and after it has ended. What packets hold is found out by reading them as `decode` does, for a
few seconds at most.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec.structs

from rpcinspect.cli.collector import imports_are_over
from rpcinspect.cli.output import empty_line, say
from rpcinspect.cli.record import ENDINGS, RecordCommand
from rpcinspect.errors import DOCTOR, RecordError, RpcInspectError
from rpcinspect.fields.phrases import counted, some
from rpcinspect.files.output import open_growing
from rpcinspect.files.place import PRIVATE, find_place, look_like, writing
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.recorder.agent import AgentMechanism
from rpcinspect.recorder.processes import ProcessNote
from rpcinspect.recorder.record import Mechanism, Outcome, RecordingResult, record, summary
from rpcinspect.recorder.wire import WireMechanism


def recorded(command: RecordCommand) -> int:
    """Runs and records; the exit code is the command's."""
    imports_are_over()
    if command.browse:
        from rpcinspect.cli.browsed_job import browse_job

        return browse_job(command)
    outcome = recorded_as_asked(command)
    for line in summary(outcome):
        say(line)
    return outcome.exit_code


def recorded_as_asked(command: RecordCommand, begins: Callable[[Path], None] = lambda file: None) -> Outcome:
    """Records the command, looks into what was written, and redacts it where that is asked for. `begins`
    hears of the file once the command has begun."""
    mechanism, file = chosen(command)

    def ready() -> None:
        say(f"recording via {mechanism.via} into {file}{', redacted at the end' if command.redact else ''}")

    with earlier(file) as put_back, hidden(beside(file)) if command.redact else nullcontext():
        outcome = record(command.command, mechanism, ready, lambda: begins(file))
        recorded = outcome.recorded
        none = not outcome.notes
        if recorded.packets is not None:
            strangers = not command.private_net and command.interface in (None, "lo")
            recorded = looked_into(recorded, outcome.notes, strangers=strangers)
            none &= recorded.messages == NO_MESSAGES
        if none and put_back():
            recorded = msgspec.structs.replace(recorded, file=file, nothing=True)
        elif command.redact:
            recorded = redacted(recorded, file, command.redact_seed)
        return msgspec.structs.replace(outcome, recorded=recorded)


@contextmanager
def earlier(file: Path) -> Iterator[Callable[[], bool]]:
    """Keeps what stands at the place of a recording until that holds something: yields what puts it back, and
    says whether there was anything. A recording that fails puts it back, too."""
    place = find_place(file)
    if place.there is None or not place.whole or not place.there.st_size:
        yield lambda: False
        return
    kept = place.path.with_name(f".{place.path.name}.before")
    with writing(file):
        place.path.rename(kept)
    back = True

    def put_back() -> bool:
        nonlocal back
        kept.replace(place.path)
        back = False
        return True

    try:
        with writing(file):
            descriptor = os.open(place.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE)
            look_like(descriptor, place.there)
            os.close(descriptor)
        yield put_back
        if back:
            kept.unlink()
            back = False
    finally:
        if back:
            put_back()


def beside(file: Path) -> Path:
    """Where a recording is that will be redacted."""
    return file.with_name(f".{file.name}.unredacted")


@contextmanager
def hidden(path: Path) -> Iterator[None]:
    """A file that nobody else may read, and that is gone in the end."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"{path}: can't be written: {error.strerror}") from error
    os.close(open_growing(path))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def redacted(recorded: RecordingResult, file: Path, seed: str | None) -> RecordingResult:
    """The recording redacted, as `decode -w --redact` does it."""
    from rpcinspect.export.save import redact_file

    try:
        count = redact_file(recorded.file, file, seed)
    except RpcInspectError as error:
        told = f"nothing was kept, since it can't be redacted: {error}"
        return msgspec.structs.replace(recorded, file=file, bytes=0, warnings=[*recorded.warnings, told])
    return msgspec.structs.replace(
        recorded, file=file, bytes=file.stat().st_size, messages=counted(count, "message")
    )


def chosen(command: RecordCommand) -> tuple[Mechanism, Path]:
    """The way of recording, and where it writes: by default the agent, if it can be built."""
    via = command.mechanism
    if via != "wire":
        file = command.output or default_name(command.command, "agent")
        try:
            return _agent(command, beside(file) if command.redact else file), file
        except RecordError as error:
            if via == "agent":
                asked = "--via agent" if command.via else f"-o {file} is written by torch's agent"
                raise RecordError(f"{asked}: {error}; {DOCTOR}") from error
            say(f"not recording via agent: {error}; {DOCTOR}")
    file = command.output or default_name(command.command, "wire")
    written = beside(file) if command.redact else file
    return WireMechanism(written, interface=command.interface or "lo", private_net=command.private_net), file


def _agent(command: RecordCommand, file: Path) -> AgentMechanism:
    return AgentMechanism(
        file,
        command.command,
        tensors=command.tensors or "all",
        when_full=command.when_full or "wait",
        tell=say,
    )


def default_name(command: Sequence[str], via: str) -> Path:
    """The script and the time, in the current folder: two recordings do not meet."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(f"{Path(script).name.removesuffix('.py')}-{stamp}{ENDINGS[via]}")


NO_MESSAGES = counted(0, "message")
SECONDS = 5.0
"""A large recording is looked into, not read to its end: who recorded it waits for the prompt."""
SHOWN = 4
"""Workers of others that are named."""


def looked_into(
    recorded: RecordingResult, notes: Sequence[ProcessNote], *, strangers: bool, seconds: float = SECONDS
) -> RecordingResult:
    """Returns the result with the number of messages, as far as the file can be read in some seconds; with
    why there are none, and with workers that are not of this command, which `strangers` asks for: on other
    interfaces they are expected."""
    end = time.monotonic() + seconds
    complete = True

    def stop_in_time(done: int, of: int | None) -> None:
        nonlocal complete
        if complete and done != of and time.monotonic() > end:
            complete = False
            decoding.stop()

    try:
        with Decoding([str(recorded.file)], Options(progress=stop_in_time)) as decoding:
            messages = counted(sum(1 for _ in decoding.records()), "message")
            session = decoding.session
    except RpcInspectError:  # such as where the command has removed it
        warnings = [f"{recorded.file} can no longer be read"] if recorded.ended_early is None else []
        return msgspec.structs.replace(recorded, warnings=warnings)
    why = empty_line(session) if complete else None
    heard = any(note.recorded for note in notes)  # else it was said that nobody used RPC
    warnings = [why] if why is not None and heard else []
    ours = {note.name for note in notes}
    others = sorted({worker.name for worker in session.workers if worker.name is not None} - ours)
    if strangers and ours and others:  # packets do not tell to which command they belong
        told = f"captured other jobs' workers too: {some(others, SHOWN)}"
        warnings.append(f"{told}; --private-net keeps them out")
    return msgspec.structs.replace(
        recorded, messages=messages if complete else f"more than {messages}", warnings=warnings
    )
