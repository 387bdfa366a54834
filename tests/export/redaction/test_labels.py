"""Names and addresses in a session."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from rpcinspect.export.redaction.labels import Labels, gathered_names, worker_names
from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.rpclog.header import LoggedFailure
from rpcinspect.run.run import open_run
from rpcinspect.session.model import Worker
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.session.workers import is_name
from rpcinspect.tensorpipe.control_types import TpDevice
from tests.session.records import Talk, entry, pipe


def test_names_and_hosts() -> None:
    pipes = (
        pipe(0, "10.9.8.7:1000", "192.168.77.5:5000", "acme-trainer"),
        pipe(1, "127.0.0.1:7", "[fe80::5]:80"),
    )
    talk = Talk(*pipes)
    session = talk.finish(
        entry("names/0", "acme-trainer"),
        entry("names/1", "acme-ps"),
        entry("addrs/acme-ps", "uv://192.168.77.5:5000"),
    )
    words = Pseudonyms(b"key", worker_names(session))
    made = Labels(words).session(session, network=True)
    said = repr(
        (made.workers, made.clients, made.servers, [(p.flow, p.listener, p.client_name) for p in made.pipes])
    )
    for secret in ("acme", "192.168.77", "10.9.8", "fe80"):
        assert secret not in said
    [ps] = [worker for worker in made.workers if worker.id == 1]
    assert ps.addresses == (str(made.pipes[0].listener),)
    assert made.pipes[0].client.port == 1000
    assert made.pipes[1].client.host == "127.0.0.1"
    assert sorted(w.name for w in made.workers if w.name) == [
        words.word(name.encode()).decode() for name in sorted(worker_names(session))
    ]
    plain = Labels(words).session(session, network=False)
    assert plain.pipes == session.pipes


def test_labels_that_are_no_names() -> None:
    labels = Labels(Pseudonyms(b"key"))
    assert not is_name("worker:3")
    assert labels.label("worker:3") == "worker:3"
    assert labels.label("[2001:db8::7]:80") == "[fd00::1]:80"
    assert labels.label("[2001:db8::7]:81") == "[fd00::1]:81"
    assert labels.device(TpDevice("cuda", 3)) == TpDevice("cuda", 3)
    assert labels.device(TpDevice("acme", 3)).type != "acme"
    assert labels.channel("basic") == "basic"
    assert labels.channel("acme") not in ("acme", None)


def test_two_hosts_stay_two_and_one_stays_one() -> None:
    labels = Labels(Pseudonyms(b"key"))
    made = [labels.label(f"192.168.77.{number}:80") for number in (5, 6, 5)]
    assert len(set(made)) == 2
    assert made[0] == made[2]


def test_how_a_process_ended_stays_but_not_by_which_error_nor_its_number() -> None:
    ended = ProcessEnd(how="exit", status=1, error="AcmeError", pid=4711)
    worker = Worker(name="acme", id=0, group=0, addresses=(), job=0, ended=ended)
    session = replace(Talk(pipe(0)).finish(), workers=(worker,))
    for network in (True, False):
        [made] = Labels(Pseudonyms(b"key")).session(session, network=network).workers
        assert made.ended == ProcessEnd(how="exit", status=1)


def test_what_a_caller_was_told_is_a_text() -> None:
    talk = Talk(pipe(0, name="acme-trainer"))
    text = "RuntimeError: EOF: end of file of acme's secret"
    said = LoggedFailure(time_ns=5, src="acme-trainer", dst="x", id=7, reason="connection", text=text)
    [failure] = Labels(Pseudonyms(b"key")).session(talk.finish(failed=[(0, said)]), network=False).lost_calls
    assert failure.reason == "connection"
    assert failure.text.startswith("RuntimeError: EOF: end of file ")
    assert "acme" not in failure.caller + failure.text
    assert "secret" not in failure.text


def test_names_that_only_the_agents_tell() -> None:
    """Which is the smallest of them says who the leader is."""
    path = Path(__file__).resolve().parents[3] / "captures/rref_relay.pcap.gz"
    with open_run(str(path)) as opened:
        names = {name for record in opened.messages for name in gathered_names(record)}
    assert names >= {"worker0", "worker1", "worker2"}
