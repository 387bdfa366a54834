"""`rpcinspect devices`: the devices that tensors went between."""

from typing import TYPE_CHECKING, ClassVar

from rpcinspect.cli.options import QuestionOptions

if TYPE_CHECKING:
    from rpcinspect.cli.answer import Answer


class DevicesCommand(QuestionOptions, frozen=True, kw_only=True):
    """Show the devices that tensors moved between, and the maps needed."""

    EXAMPLES: ClassVar = ("devices run.pcap", "devices run.pcap --format jsonl")

    def how(self) -> "Answer":
        from rpcinspect.cli.answer import Answer
        from rpcinspect.views.jsonl.questions import device_maps_json
        from rpcinspect.views.text.device_maps import show_device_maps

        return Answer(
            noun="device map",
            count=lambda run: len(run.device_maps),
            show=lambda run, console: show_device_maps(run.device_maps, console),
            json=lambda run: device_maps_json(run.device_maps),
            kinds=("device_map",),
        )
