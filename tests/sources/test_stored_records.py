"""Records out of a store are those that were decoded first: a run of them answers the same."""

from __future__ import annotations

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.run.run import RunModel
from rpcinspect.sources import stored_records
from rpcinspect.sources.message_store import MessageStore
from rpcinspect.sources.stored_records import StoredRecords
from rpcinspect.views.jsonl.lines import message_line
from rpcinspect.views.questions.all import QUESTIONS
from tests.places import recorded


@pytest.mark.parametrize("name", ["bwd_boom.pcap", "rref_relay.pcap"])
def test_a_run_of_stored_records(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_records, "KEPT_RECORDS", 5)
    path = recorded(name)
    with Decoding([str(path)]) as decoding, MessageStore() as store:
        records = []
        for some in decoding.blocks():
            store.extend([record.tp for record in some])
            records += some
        whole = RunModel.of(decoding, records)
        stored = StoredRecords(store, decoding.session.order)
        run = RunModel(decoding.session, stored, ends=decoding.ends, source=decoding.bytes)
        assert len(run) == len(whole)
        for question in QUESTIONS.values():
            assert list(question.json(run)) == list(question.json(whole))
        for index, record in enumerate(whole.messages):
            lines = [
                message_line(one, decoding.session, decoding.bytes, hashes=True)
                for one in (stored[index], record)
            ]
            assert lines[0] == lines[1]
        assert stored[3] is stored[3]
        assert [one.row for one in stored[2:5]] == [one.row for one in whole.messages[2:5]]
        assert stored._record.cache_info().currsize == 5


def test_an_index_out_of_range() -> None:
    with Decoding([str(recorded("basic_chain.pcap"))]) as decoding, MessageStore() as store:
        for some in decoding.blocks():
            store.extend([record.tp for record in some])
        stored = StoredRecords(store, decoding.session.order)
        assert stored[-1].row == stored[23].row
        with pytest.raises(IndexError):
            stored[24]
