"""`rpcinspect export dot`: the autograd graph of a context as a drawing."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.graph import named_graphs
from rpcinspect.cli.options import ContextOption, ShownOptions

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown
    from rpcinspect.run.run import RunModel


class DotCommand(ShownOptions, frozen=True, kw_only=True):
    """Write the autograd graph of a context for Graphviz."""

    EXAMPLES: ClassVar = ("export dot run.pcap --context 0:3 | dot -Tsvg > graph.svg",)

    context: ContextOption = None

    def run(self) -> int:
        """Writes the graph; returns the exit code."""
        from rpcinspect.cli.answer import over_run, part_of
        from rpcinspect.cli.output import open_console
        from rpcinspect.export.dot import dot_lines

        def arrows(run: "RunModel") -> int:
            graphs = named_graphs(run, self.context)
            edges = [(graph, edge) for graph in graphs for edge in graph.edges]
            gradients = sum(graph.shows_gradient(gradient) for graph, e in edges for gradient in e.gradients)
            return gradients + sum(graph.shows(edge.forward) for graph, edge in edges)

        def write(run: "RunModel", shown: "Shown | None") -> None:
            part = part_of(run, shown)
            graphs = named_graphs(part, self.context)
            note = None if shown is None else shown.words(arrows(part), arrows(run), "arrow")
            with open_console(self.output) as console:
                for line in dot_lines(graphs, note):
                    console.file.write(f"{line}\n")

        return over_run(self, write)
