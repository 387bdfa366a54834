"""Which outputs are kept: the inputs that there are, and what is asked of each.

In: captures/, and ../shared beside the checkout where it is. Out: `Subject`s, and of each its questions, as
the arguments of `rpcinspect`. Some ask for a context or a message by number, which `decode --format jsonl`
tells. All paths are as from the checkout's root, so that two checkouts get the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.places import ROOT, WITHOUT_SHARED

BUNDLED, SHARED = "captures", "../shared/captures"
ATTACKS = "attacks"
"""Captures of which only what `replay` says matters; tests/replayer/test_attacks.py holds that."""
PACKED = (".gz", ".zst")
NO_CAPTURES = {".py", ".sh", ".truth", ".json", ".md", ".tsv", ".txt", ".log"}
"""What else lies beside captures."""

DEAR = {
    "reports/hostile/payload_bomb.rpclog": "each view reads a gigabyte",
    "reports/hostile/chain_1250.rpclog": "each view takes 6 s of a processor",
    "reports/hostile/walk_limit.rpclog": "each view takes 12 s of a processor",
}
"""Captures, wherever they lie, that are asked only `OF_DEAR` → why."""
OF_DEAR = ("decode --check",)
LISTING = "decode --format jsonl"
"""Which contexts and messages there are is read from its output."""
BRIEF = (
    *("decode --check", "decode --all --strict", "decode --stream", "disconnects"),
    *("decode --format jsonl --stream", "decode --write OUT/written.pcap", "findings --check"),
)
"""Questions to each run."""
OF_RPC = (
    *BRIEF,
    *("decode --calls", "decode --calls --all", "decode --calls --format jsonl"),
    *("decode --roundtrip", "contexts", "latency", "profile", "rrefs", "devices"),
    *("latency --all", "profile --all", "rrefs --all"),
    *("contexts --format jsonl", "latency --format jsonl", "disconnects --format jsonl"),
    *("decode --format jsonl --no-hash", "decode --format json", "export html", "export perfetto"),
    *("export parquet -o OUT/tables", "export rpclog -o OUT/log.rpclog", "export safetensors -o OUT/tensors"),
    "export rpclog --redact --redact-seed golden -o OUT/redacted.rpclog",
    "decode --filter request&&!control",
    "decode --filter latency>1ms||problem --format jsonl",
    "findings --format jsonl",
)
"""Questions to each that holds RPC."""
THIRD_PARTIES = f"{SHARED}/thirdparty/"
"""Captures of other protocols: they have what `BRIEF` asks for."""
MAX_CONTEXTS = 2
MAX_MESSAGES = 3
"""So many contexts, the first ones, and messages, the first of each type, are shown in full."""
REPLAY = (*("--plan", "--plan SOURCES", "--plan --all SOURCES", "--plan --format jsonl SOURCES"),)
DIFF = ("", "--all", "--strict --all", "--tolerance", "--format jsonl", "--format html")
ASKING = ("contexts", "graph", "latency", "rrefs", "devices", "disconnects", "profile", "findings")
COMMANDS = ("decode", *ASKING, "diff", "replay", "reproduce", "join", "leave", "record", "export")
FORMATS = ("html", "perfetto", "parquet", "rpclog", "safetensors", "dot")
HELP = (
    *("--help", "decode --fields"),
    *(f"{command} --help" for command in COMMANDS),
    *(f"export {format} --help" for format in FORMATS),
)
"""What needs no input."""
NO_INPUT = "(no input)"


@dataclass(frozen=True)
class Subject:
    """Input files, as one run or as two to compare."""

    files: tuple[str, ...]
    compared: bool = False
    flags: tuple[str, ...] = ()
    """Of a pair: options of `diff` that it is made for."""
    only: tuple[str, ...] = ()
    """The questions to it, where they are not all."""

    @property
    def listed(self) -> bool:
        """Whether the questions depend on what is there."""
        return bool(self.files) and not self.compared and not self.only

    @property
    def name(self) -> str:
        return " ".join(self.files) or NO_INPUT

    def size(self) -> int:
        """Bytes of its files."""
        return sum((ROOT / file).stat().st_size for run in self.files for file in run.split(","))

    def command(self, question: str) -> list[str]:
        """The arguments of `rpcinspect` that ask it; OUT stands for a folder."""
        words = [
            word
            for part in question.split(" ")
            for word in (sources(self.files[0]) if part == "SOURCES" else [part])
        ]
        own = 2 if words[0] == "export" else 1
        return [*words[:own], *self.files, *words[own:]]

    def questions(self, listing: str) -> Iterator[str]:
        """All but `LISTING` itself, whose output is `listing`."""
        if self.only:
            yield from self.only
        elif not self.files:
            yield from HELP
        elif self.compared:
            yield from dict.fromkeys(f"diff {options}".rstrip() for options in (*DIFF, *self.flags))
        else:
            foreign = self.name.startswith(THIRD_PARTIES)
            yield from BRIEF if foreign else OF_RPC
            if foreign:
                return
            yield from _numbered(listing)
            yield from _logs(self.files[0])
            yield from (f"replay {options}" for options in REPLAY)


def subjects() -> list[Subject]:
    """All that are there."""
    there = captures()
    found = [Subject(())]
    found += [Subject((path,), only=OF_DEAR if name in DEAR else ()) for name, path in there.items()]
    if there.keys() >= {ONE_HOST, *TWO_HOSTS}:
        hosts = [there[name] for name in TWO_HOSTS]
        found += [Subject(tuple(hosts)), Subject((there[ONE_HOST], ",".join(hosts)), compared=True)]
    if there.keys() >= set(FOUR_HOSTS):
        found.append(Subject(tuple(there[name] for name in FOUR_HOSTS)))
    return [*found, *_pairs(there)]


def captures() -> dict[str, str]:
    """Every capture, by its path below its folder; of one that lies in both folders, the bundled."""
    found: dict[str, str] = {}
    for folder in (BUNDLED,) if WITHOUT_SHARED else (BUNDLED, SHARED):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in NO_CAPTURES and "__pycache__" not in path.parts:
                place = path.relative_to(ROOT / folder)
                if place.parts[0] == ATTACKS:
                    continue
                name = place.with_suffix("") if place.suffix in PACKED else place
                found.setdefault(str(name), f"{folder}/{place}")
    return found


def _pairs(there: dict[str, str]) -> Iterator[Subject]:
    """What is compared, of what is there."""
    flags: dict[tuple[str, str], list[str]] = {}
    expected = ROOT / BUNDLED / "pairs" / "expected.json"
    for row in json.loads(expected.read_text()) if expected.exists() else ():
        runs = (f"pairs/{row['a']}.pcap", f"pairs/{row['b']}.pcap")
        flags.setdefault(runs, []).append(" ".join(row["flags"]))
    for folder, *names in COMPARED:
        flags.update({pair: [] for pair in combinations([f"{folder}/{name}" for name in names], 2)})
    for (a, b), options in flags.items():
        if a in there and b in there:
            yield Subject((there[a], there[b]), compared=True, flags=tuple(options))


ONE_HOST = "reports/job/plain.pcap"
TWO_HOSTS = ("reports/job/two_a.rpclog", "reports/job/two_b.rpclog")
"""The logs of one run, and the capture of another run of that job."""
FOUR_HOSTS = tuple(f"reports/hosts/forget.host{host}.pcap" for host in (3, 2, 1, 0))
"""The captures of one run, that of the job's driver last."""
COMPARED = (
    ("reports/concurrent", "chain_ctx1.pcap", "chain_ctx2.pcap", "chain_ctx3.pcap"),
    ("reports/concurrent", "relay_plain1.pcap", "relay_plain2.pcap", "relay_plain3.pcap"),
    ("reports/concurrent", "shared1.pcap", "shared2.pcap"),
    ("reports/concurrent", "forks_a1.rpclog", "forks_a2.rpclog", "forks_bad.rpclog"),
    ("reports/diff", "fan_A.pcap", "fan_C.pcap"),
    ("reports/diff", "pad_a.pcap", "pad_b.pcap"),
    ("reports/findings", "stale_own.pcap", "stale_shared.pcap"),
    ("reports/job", "plain.pcap", "dropout.pcap", "custom.pcap", "nan.pcap"),
    ("reports/job", "nan.pcap", "nan_late.pcap"),
    ("reports/job", "plain.pcap", "two_a.rpclog"),
    ("reports/latency", "rref_proxies.pcap", "rref_proxies.rpclog"),
    ("torch", "chan_mpt.pcap", "chan_shmuv.pcap"),
    ("torch", "stress_basic.pcap", "stress_mpt_uv.pcap"),
    ("torch", "stress_mpt_uv.pcap", "stress_lossy.pcap"),
    ("versions", "torch-1.8.1.pcap", "torch-1.13.1.pcap", "torch-2.14.1.pcap"),
)
"""Folder and captures of which each is compared with each; those in captures/pairs by expected.json there."""


def _numbered(listing: str) -> Iterator[str]:
    """Questions to single contexts and messages."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in listing.splitlines()]
    contexts = [line["context_id"] for line in lines if line["kind"] == "context"]
    yield from (f"graph --context {context}" for context in contexts[:MAX_CONTEXTS])
    for context in contexts[:1]:
        yield f"graph --context {context} --format jsonl"
        yield f"export dot --context {context}"
    messages = [line for line in lines if line["kind"] == "message"]
    first: dict[str, int] = {}
    for message in sorted(messages, key=lambda message: bool(message["control"])):
        first.setdefault(message["type"], message["index"])
    shown = list(first.values())[:MAX_MESSAGES]
    yield from (f"decode --message {number}" for number in shown)
    yield from (f"decode --message {number} --all" for number in shown[:1])
    yield from (f"decode --message {number} --format jsonl" for number in shown[:1])


def _logs(file: str) -> Iterator[str]:
    """Questions to the capture that has logs of its workers beside it."""
    if file == "captures/logs/killed.pcap.gz":
        logs = " ".join(f"--worker-log captures/logs/killed.worker{rank}.log" for rank in range(3))
        yield from (f"decode {logs}", f"disconnects {logs}", f"decode {logs} --format jsonl")


def sources(file: str) -> list[str]:
    """The options of `replay` that name the sources of a capture's job, where they are there."""
    path = Path(file)
    folder, stem = str(path.parent), path.name.partition(".")[0]
    top = BUNDLED if path.parts[0] == BUNDLED else SHARED
    match path.parent.relative_to(top).parts:
        case ("reports", "job"):
            return ["--path", folder, "--main", f"{folder}/train.py"]
        case ("reports", "replay"):
            main = "rtt_main" if stem == "part" else "nested_main"
            return ["--path", f"{folder}/src", "--main", f"{folder}/src/{main}.py"]
        case ("reports", "concurrent"):
            scripts = {"chain": "chain", "relay": "relay", "forks": "forks"}
            main = scripts.get(stem.partition("_")[0], "shared_rref")
            return ["--path", folder, "--main", f"{folder}/{main}.py"]
        case ("reports", "hostile"):
            return ["--path", f"{folder}/src"]
        case ("torch",):
            return ["--path", f"{folder}/scripts"]
        case ("torch-suite",):
            method = "torch.testing._internal.distributed.rpc.dist_optimizer_test:MyModule.forward"
            return ["--allow", "torch.testing._internal", "--allow", method]
        case ("reports" | "versions" | "examples", *_):
            return ["--path", folder]
        case _:
            return ["--path", BUNDLED]
