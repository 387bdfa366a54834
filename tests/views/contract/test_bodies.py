"""Bodies are those of jsonl, and equal ones are made once."""

from __future__ import annotations

import json
from collections import defaultdict

from rpcinspect.views.contract.bodies import Bodies
from rpcinspect.views.contract.jsonl import message_line
from tests.views.opened import opened


def test_a_body_is_that_of_the_message_line() -> None:
    for name in ("basic_chain.pcap", "rref_relay.pcap.gz", "dtype_zoo.pcap.gz", "bwd_boom.pcap.gz"):
        bodies = Bodies()
        with opened(name) as capture:
            for record in capture.records:
                line = json.loads(message_line(record, capture.session, capture.bytes, hashes=False))
                assert bodies.of(record) == line["body"]


def test_messages_that_say_the_same_share_a_body() -> None:
    bodies = Bodies()
    with opened("ctx_crowd.pcap.gz") as capture:
        told = defaultdict(list)
        for record in capture.records:
            told[id(record.rpc.command), id(record.rpc.tensors)].append(bodies.of(record))
        calls = [its for its in told.values() if len(its) > 1 and "function" in its[0]]
        assert calls
        assert all(body is its[0] for its in calls for body in its)
