"""Old spellings of the command line, and the command that each of them is now.

In: a command and its arguments. Out: one line for whoever still types an old spelling; None of it works.
"""

from collections.abc import Sequence

GONE = {
    "decode": {
        "--contexts": "contexts FILE…",
        "--graph": "graph FILE… --context ID",
        "--latency": "latency FILE…",
        "--rrefs": "rrefs FILE…",
        "--device-maps": "devices FILE…",
        "--closings": "disconnects FILE…",
        "--profile": "profile FILE…",
        "--tensors": "export safetensors FILE… -o DIR",
        "--partition": "export parquet FILE… -o DIR --partition NAME",
        "--format html": "export html FILE… -o OUT",
        "--format perfetto": "export perfetto FILE… -o OUT",
        "--format parquet": "export parquet FILE… -o DIR",
        "--format rpclog": "export rpclog FILE… -o OUT",
        "--format dot": "export dot FILE… --context ID",
        "--format mermaid": "export dot FILE… --context ID",
    },
    "replay": {
        "--show-gradients": "replay FILE… --gradients",
        "--export": "reproduce FILE… -o DIR",
        "--pytest": "reproduce FILE… -o DIR --pytest",
        "--message": "reproduce FILE… -o DIR --message N",
        "--connect": "join tcp://HOST:PORT FILE… --yes",
        "--yes-join": "join tcp://HOST:PORT FILE… --yes",
        "--rename": "join tcp://HOST:PORT FILE… --rename CAPTURED=MEMBER",
        "--leave": "leave tcp://HOST:PORT NAME… --yes",
    },
}


def line_for(command: str, arguments: Sequence[str]) -> str | None:
    """Returns the line with the new spelling of the first argument that is an old one."""
    old = GONE.get(command, {})
    for at, argument in enumerate(arguments):
        if argument == "--":
            break
        option = argument.partition("=")[0]
        if option == "--format":
            option = " ".join(argument.split("=") if "=" in argument else arguments[at : at + 2])
        if option in old:
            new = old[option].split()
            own = option.split()[0] in new
            what = "an option of another command" if own else "a command"
            what = "an option of another name" if new[0] == command else what
            return f"{option} is {what} now: rpcinspect {old[option]}"
    return None
