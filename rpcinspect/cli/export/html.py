"""`rpcinspect export html`: a run as a page to look at."""

from typing import ClassVar

from rpcinspect.cli.options import ShownOptions


class HtmlCommand(ShownOptions, frozen=True, kw_only=True):
    """Write one self-contained page: sequence diagram, messages, graphs, findings."""

    EXAMPLES: ClassVar = ("export html run.pcap -o run.html", "export html run.pcap -f error -o errors.html")

    def run(self) -> int:
        """Writes the page; returns the exit code."""
        from rpcinspect.cli.answer import write_file
        from rpcinspect.views.page.html_page import trace_html

        return write_file(self, trace_html)
