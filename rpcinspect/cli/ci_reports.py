"""Results for CI servers: options for them, JUnit XML in a file, annotations in the log of GitHub Actions.

In: what a command found out, as a suite of tests. Out: a file, and lines on standard error, which leaves
standard output to the answer. A command that fails leaves a suite that says why: a job of which no report is
there looks like one that had nothing to test.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from rpcinspect.cli.github_log import GithubLog, is_github_log
from rpcinspect.cli.options import below, option
from rpcinspect.errors import OutputError, RpcInspectError
from rpcinspect.unexpected import fault

if TYPE_CHECKING:
    from rpcinspect.views.ci.suite import SuiteResult

REPORTS = below("Reports for CI")
JunitOption = Annotated[
    Path | None, option("--junit FILE", "Write the result as tests, in JUnit XML.", **REPORTS)
]
AnnotationsOption = Annotated[
    Literal["github", "none"] | None,
    option("--annotations", "Mark faults on the change. Default: github in GitHub Actions.", **REPORTS),
]


class ReportOptions(Protocol):
    """A command with these options."""

    @property
    def junit(self) -> Path | None:
        """The file for JUnit XML."""

    @property
    def annotations(self) -> Literal["github", "none"] | None:
        """Who gets annotations; None: GitHub, in a step of GitHub Actions."""


def wanted(asked: ReportOptions) -> bool:
    """Returns whether anybody wants a suite."""
    return asked.junit is not None or _annotates(asked)


def _annotates(asked: ReportOptions) -> bool:
    return asked.annotations == "github" or (asked.annotations is None and is_github_log())


def report_results(asked: ReportOptions, suite: "Callable[[], SuiteResult]") -> None:
    """Writes what is wanted of a suite, which is made only then."""
    if not wanted(asked):
        return
    from rpcinspect.cli.output import open_output, write_error
    from rpcinspect.views.ci.github import workflow_commands
    from rpcinspect.views.ci.junit import junit_xml

    made = suite()
    if asked.junit is not None:
        with open_output(asked.junit) as output:
            output.write(junit_xml(made))
    if _annotates(asked):
        for line in workflow_commands(made.annotations):
            write_error(f"{line}\n", commands=True)


@contextmanager
def reported(asked: ReportOptions, command: str, *runs: Sequence[str]) -> Iterator[None]:
    """Reports an error that ends the command, as it is told to people, too; `runs`: see `failed_suite`."""
    GithubLog.asked = asked.annotations == "github"
    try:
        yield
    except Exception as error:
        # Python forgets `error` behind this block
        reason = str(error) if isinstance(error, RpcInspectError) else fault(error)

        def failed() -> "SuiteResult":
            from rpcinspect.views.ci.suite import failed_suite

            return failed_suite(command, runs, reason)

        with suppress(OutputError):  # it may be what has failed
            report_results(asked, failed)
        raise


def report_mistakes(asked: ReportOptions) -> Iterator[str]:
    """Yields what is wrong with these options."""
    if asked.junit == Path("-"):
        yield "--junit -: name a file; standard output is for the answer"
