"""Forks a program as often as it is asked to, from a process that has imported torch, which takes seconds.

In: on standard input lines of JSON: `start`, the program and its arguments, and `env`, its environment; or
`wait`, a process id, and `seconds`. Out: a line for each: the process id; the exit code, null where it still
runs. Each is a process of its own, in a session of its own; when the input ends, all are ended.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import sys
from typing import Any

import torch.distributed.rpc  # noqa: F401 - for the programs

CONTEXT = multiprocessing.get_context("fork")


def program(arguments: list[str], env: dict[str, str]) -> None:
    """As if it had been started by itself; nobody wants its output."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    running: dict[int | None, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            process = CONTEXT.Process(target=program, args=(asked["start"], asked["env"]))
            process.start()
            running[process.pid] = process
            answer = process.pid
        else:
            process = running[asked["wait"]]
            process.join(asked["seconds"])
            answer = process.exitcode
        print(json.dumps(answer), flush=True)
    for process in running.values():
        process.kill()


if __name__ == "__main__":
    main()
