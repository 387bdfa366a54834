"""Command lines to paste: a shell takes their words as they are."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from rpcinspect.browse.export_forms import paste_lines, shell_word
from rpcinspect.capture import Reading
from rpcinspect.limits import Unpacking
from rpcinspect.pipeline import Options

WORDS = [
    *("run.pcap", "a b", "it's", "", "$HOME `id` $(id)", "a\nrm -rf x", "\x1b[31mred'\\", "ü→", "*"),
    *("\u202egnp.pcap", "\udcff.pcap", "-f", "!!", "#x", "~root"),
]


@pytest.mark.parametrize("word", WORDS)
def test_a_shell_reads_the_word(word: str) -> None:
    quoted = shell_word(word)
    assert quoted.isprintable()
    read = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True).stdout
    assert read.decode("utf-8", "surrogateescape") == word


def test_options_that_captures_were_read_with_are_in_every_command() -> None:
    reading = Reading(reader="tshark", preferences=("tcp.x:1",), unpacking=Unpacking(bytes=None, ratio=None))
    options = Options(reading=reading, names={2: "worker2"})
    for line in paste_lines(["-run.pcap", "b.pcap"], options, 7, "index == 7", "run-7"):
        words = shlex.split(line.text)
        assert words[0] == "rpcinspect"
        at = words.index("./-run.pcap")
        assert words[at : at + 10] == [
            *("./-run.pcap", "b.pcap", "--reader", "tshark", "--tshark-option", "tcp.x:1"),
            *("--worker", "2=worker2", "--unpack-limit", "none"),
        ]


def test_a_single_message_can_be_shown_in_full() -> None:
    texts = [line.text for line in paste_lines(["run.pcap"], Options(), 7, "index == 7", "run-7")]
    assert "rpcinspect decode run.pcap --message 7" in texts
    assert "rpcinspect decode run.pcap -f 'index == 7' -w run-7.pcap" in texts
    assert not any("--message" in line.text for line in paste_lines(["run.pcap"], Options(), None, "", "run"))
