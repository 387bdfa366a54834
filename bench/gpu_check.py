"""The check behind bench/gpu_check.sh: run, capture, decode and replay on a GPU; see there.

In: a machine with a GPU (`--dry`: none), the bundled captures. Out: a line for each thing that was looked at,
a verdict, and gpu_check.json in `--out` beside the captures that were made. All arithmetic is exact, so that
a GPU's bits are a CPU's; where only the last bits differ, that is told and accepted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from late_packages import extend_path

HERE = Path(__file__).resolve().parent
CAPTURES = HERE.parent / "captures"
BUNDLED = ("basic_chain.pcap", "devmap_cpu.pcap.gz", "ctx_crowd.pcap.gz")
SECONDS = 100
WORKERS, TOLD = 3, 12
"""Of bench/gpu_job.py: its processes, and the tensors of which worker0 prints a line."""
FIRST = {"worker0", "worker1"}
"""Between whom its map is looked at."""
ALIKE = ("identical", "tolerance")


class Check:
    """What was looked at, and what came of it."""

    def __init__(self, device: str, out: Path) -> None:
        self.device = device
        self.out = out
        self.rows: list[dict[str, Any]] = []

    def row(self, what: str, ok: bool, detail: object = "") -> None:
        self.rows.append({"what": what, "ok": ok, "detail": detail})
        print(f"{'ok  ' if ok else 'FAIL'} {what}{f': {detail}' if detail != '' else ''}", flush=True)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Whatever goes wrong inside is a failure of this step, and the next one begins."""
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            self.row(what, False, f"{type(error).__name__}: {error}")
        print(f"     {what}: {time.monotonic() - began:.1f} s", flush=True)

    def replay(self, capture: Path, device: str, *options: str) -> None:
        command = [sys.executable, str(HERE / "late_packages.py"), "rpcinspect", "replay", str(capture)]
        command += ["--engine", "agent", "--device", device, "--tolerance", "--format", "jsonl", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        what = f"{capture.name} replayed on {device}"
        if done.returncode not in (0, 1):
            self.row(what, False, (done.stderr or done.stdout).strip()[-1500:])
            return
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        report = lines[-1]
        told = {name: report[name] for name in ("verdict", "responses", "gradients", "skipped", "failures")}
        whole = report["gradients"]["identical"] + report["gradients"]["tolerance"]
        ok = report["verdict"] in ALIKE and whole == report["gradients"]["expected"] > 0
        gradients, answers = (
            f"{report[part]['identical']} of {report[part]['expected']} identical"
            for part in ("gradients", "responses")
        )
        self.row(what, ok, f"{report['verdict']}: gradients {gradients}, answers {answers}")
        if not ok:
            print(json.dumps(told), flush=True)
            bad = [one for one in lines[:-1] if one.get("result") not in (None, *ALIKE)]
            print("\n".join(json.dumps(one) for one in bad[:5]), flush=True)

    def job(self, number: int, maps: dict[str, str]) -> None:
        """One job with its capture: run, decode, compare with what the job printed, replay."""
        capture = self.out / f"gpu_job_{number}.pcap"
        what = f"job with {maps}"
        told: list[dict[str, str]] = []
        with self.step(f"{what} run"), sniffed(capture):
            told = run_job(self.device, maps)
        if not told:
            return
        self.row(f"{what} run", len(told) == TOLD, f"{capture.stat().st_size:,} bytes captured")
        with self.step(f"{what} decoded"):
            self.decoded(capture, what, told, maps)
        for device in dict.fromkeys((self.device, "cpu")):
            with self.step(f"{what} replayed on {device}"):
                self.replay(capture, device, "--main", str(HERE / "gpu_job.py"))

    def decoded(self, capture: Path, what: str, told: list[dict[str, str]], maps: dict[str, str]) -> None:
        from rpcinspect.rpc.envelope import RpcWithAutograd
        from rpcinspect.rpc.message import MessageType
        from rpcinspect.run.run import open_run

        hashes, envelopes, ways, problems = set(), set(), set(), 0
        with open_run(str(capture)) as opened:
            for record in opened.messages:
                problems += len(record.problems)
                pipe = record.tp.pipe.number
                first = {opened.session.clients[pipe], opened.session.servers[pipe]} == FIRST
                for tensor in record.tp.tensors:
                    if tensor.extent is not None and not tensor.missing_bytes:
                        hashes.add(hashlib.sha256(opened.read(tensor.extent)).hexdigest())
                    if first and record.rpc.message.type == MessageType.BACKWARD_AUTOGRAD_REQ:
                        ends = (tensor.descriptor.source_device, tensor.descriptor.target_device)
                        forth = record.tp.pipe.client_name == "worker0"
                        ways.add((forth, *(name_of(end) for end in ends)))
                for envelope in record.rpc.envelopes:
                    if first and isinstance(envelope, RpcWithAutograd) and envelope.device_map:
                        envelopes.add(tuple(sorted(envelope.device_map.items())))
            channels = sorted({name for pipe in opened.session.pipes for _, name in pipe.channels})
        lost = [one["what"] for one in told if one["sha256"] not in hashes and "grad" not in one["what"]]
        self.row(f"{what}: every tensor's bytes decoded", not lost and not problems, lost or channels)
        self.row(f"{what}: the map is in the requests", envelopes == {tuple(sorted(maps.items()))}, envelopes)
        own, other = next(iter(maps.items()))
        expected = {(True, own, other), (False, other, own)}
        if self.device == "cpu":  # a CPU's descriptors need not name it
            ways = {(forth, a or "cpu", b or "cpu") for forth, a, b in ways}
        self.row(f"{what}: the map forth, its reverse on the backward", ways == expected, sorted(ways))


def no_sniffing() -> str | None:
    """Moves this process into a network of its own, or stays where it is; why it can't sniff in either."""
    from rpcinspect.capture.packet_socket import open_socket
    from rpcinspect.errors import CaptureError, RecordError
    from rpcinspect.recorder.namespace import enter_own_network

    with suppress(RecordError):
        enter_own_network()
    try:
        open_socket("lo").close()
    except (CaptureError, OSError) as error:
        return str(error)
    return None


@contextmanager
def sniffed(path: Path) -> Iterator[None]:
    """The loopback's packets meanwhile, in a capture."""
    from rpcinspect.capture.packet_socket import Ring, open_socket
    from rpcinspect.capture.sniffer import Sniffer
    from rpcinspect.files.output import open_growing

    sniffer = Sniffer(Ring(open_socket("lo")), open_growing(path))
    try:
        yield
    finally:
        report = sniffer.finish()
    if report.dropped or report.ended_early:
        raise RuntimeError(f"{report.dropped} packets lost; {report.ended_early or 'no error'}")


def name_of(device: Any) -> str:
    if device is None:
        return ""
    return "cpu" if device.type == "cpu" else f"{device.type}:{device.index}"


def run_job(device: str, maps: dict[str, str]) -> list[dict[str, str]]:
    """What worker0 printed. Raises with what the workers wrote if one fails."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "TP_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-B", str(HERE / "gpu_job.py"), device, str(port), str(rank), json.dumps(maps)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORKERS)
    ]
    try:
        said = [worker.communicate(timeout=SECONDS) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(worker.returncode for worker in workers):
        raise RuntimeError(" / ".join(errors[-800:] for _, errors in said))
    return [json.loads(line) for line in said[0][0].splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="on the CPU alone")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    extend_path()
    refused = no_sniffing()  # before numpy and torch start threads
    if refused is not None:
        print(f"can't sniff on the loopback: {refused}", file=sys.stderr)
        return 2
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not options.dry and not gpus:
        print(f"PyTorch {torch.__version__} finds no GPU; --dry checks the rest", file=sys.stderr)
        return 2
    began = time.monotonic()
    check = Check("cpu" if options.dry else "cuda", options.out)
    card = "none (dry)" if options.dry else f"{gpus} x {torch.cuda.get_device_name(0)}"
    version = f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
    print(f"{card}; {version}", flush=True)
    if options.dry:
        maps = [{"cpu": "cpu"}]
    else:
        maps = [{"cuda:0": "cuda:1" if gpus > 1 else "cuda:0"}, {"cpu": "cuda:0"}]
    for number, one in enumerate(maps):
        check.job(number, one)
    for name in BUNDLED[:1] if options.dry else BUNDLED:
        with check.step(f"{name} replayed on {check.device}"):
            check.replay(CAPTURES / name, check.device, "--path", str(CAPTURES))
    seconds = time.monotonic() - began
    failed = sum(not row["ok"] for row in check.rows)
    summary = {"card": card, "version": version, "seconds": round(seconds, 1), "failed": failed}
    text = json.dumps({**summary, "rows": check.rows}, indent=1, default=str)
    (options.out / "gpu_check.json").write_text(text, encoding="utf-8")
    print(f"{len(check.rows) - failed} of {len(check.rows)} as expected, {seconds:.0f} s: {card}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
