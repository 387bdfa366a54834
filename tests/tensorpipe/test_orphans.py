"""Lanes of pipes that were opened before the capture: the right one or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.tensorpipe.orphans import FLOOR_NS, MARGIN, MAX_UNSENT
from tests.builders import ACK, FIN, RST, SYN, Segment
from tests.tensorpipe.conversations import Network, Outcome, PipeTalk, Said, frame, play, segments
from tests.thorough import examples

MS = 1_000_000


class Story(Struct):
    """Pipes, and a clock that each write looks at; `tell` cuts off all that was written before `begin`."""

    network: Network = field(default_factory=Network)
    now_ns: int = MS
    times: list[int] = field(default_factory=list)
    first: int = 0
    tensors: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    """What really was in each message, by its payload."""

    def pipe(self, **how: object) -> PipeTalk:
        """Opens one."""
        return PipeTalk(self.network, **how)  # type: ignore[arg-type]

    def begin(self) -> None:
        """The capture starts here."""
        self._stamp()
        self.first = len(self.network.writes)

    def say(
        self,
        pipe: PipeTalk,
        *lengths: int,
        from_client: bool = True,
        first: bool = False,
        after_ns: int = 1000,
        lag_ns: int = 1000,
        unsent: int = 0,
    ) -> None:
        """A message with tensors of these lengths; `lag_ns` later (or earlier) its tensors, but for the last
        `unsent`.
        """
        number = len(self.tensors)
        data = tuple(bytes([1 + (number * 7 + i) % 255]) * n for i, n in enumerate(lengths))
        said = Said(type=0x102 if from_client else 0x203, id=number, payload=b"message %d" % number)
        self.tensors[said.payload] = data
        self._pass(after_ns)
        sent = data[: len(data) - unsent]
        announce = replace(said, tensors=data)
        if first:
            self._send(pipe, sent, from_client=from_client)
            self._pass(lag_ns)
        before = len(self.network.writes)
        pipe.send(announce, from_client=from_client)
        del self.network.writes[before + 1 :]
        if not first:
            self._pass(lag_ns)
            self._send(pipe, sent, from_client=from_client)
        self._stamp()

    def _send(self, pipe: PipeTalk, tensors: Iterable[bytes], *, from_client: bool) -> None:
        for one in tensors:
            pipe.send_tensor(one, from_client=from_client)

    def _pass(self, ns: int) -> None:
        self._stamp()
        self.now_ns += ns

    def _stamp(self) -> None:
        self.times += [self.now_ns] * (len(self.network.writes) - len(self.times))

    def rows(self, *, end: int = FIN, lost: Sequence[int] = ()) -> list[Segment]:
        """What was captured: nothing before the beginning, nothing of connections that are `lost`."""
        self._stamp()
        rows = segments(self.network, sizes=(1 << 20,), syn=False, end=end)
        count = len(self.network.writes)
        out = []
        for at, row in enumerate(rows):
            write = at // 2  # each write is one segment and its acknowledgment
            time_ns = self.times[write] if write < count else self.now_ns
            if write >= self.first and row.flow // 2 not in lost:
                out.append(replace(row, time_ns=time_ns))
        return sorted(out, key=lambda row: row.time_ns or 0)

    def tell(
        self, *, end: int = FIN, lost: Sequence[int] = (), block: int = 50
    ) -> dict[bytes, list[bytes | str]]:
        """The tensors of each message as they came out, by its payload."""
        outcome = play(self.network, rows=self.rows(end=end, lost=lost), block=block)
        return heard(outcome)


def heard(outcome: Outcome) -> dict[bytes, list[bytes | str]]:
    return {m.payloads[2]: list(outcome.heard(m).tensors) for m in outcome.messages}


def right(story: Story, found: dict[bytes, list[bytes | str]]) -> list[bool]:
    """For each tensor of each message, in order, whether it was placed; where it was, it is the right one."""
    out = []
    for payload, tensors in found.items():
        truth = story.tensors[payload]
        assert len(tensors) == len(truth)
        for got, wanted in zip(tensors, truth, strict=True):
            if isinstance(got, bytes):
                assert got == wanted, f"{payload!r}: the bytes of another tensor"
            out.append(isinstance(got, bytes))
    return out


# --- one pipe ---


@pytest.mark.parametrize("end", [FIN, 0])
@pytest.mark.parametrize("directions", [(True,), (False,), (True, False), (True, True, False)])
@pytest.mark.parametrize("first", [True, False])
def test_the_only_lane_is_the_pipes(first: bool, directions: tuple[bool, ...], end: int) -> None:
    story = Story()
    pipe = story.pipe()
    for side in directions:
        story.say(pipe, 5, 6, from_client=side)
    story.begin()
    for number, side in enumerate(directions * 2):
        story.say(pipe, 5, 7 + number, from_client=side, first=first)
    found = story.tell(end=end)
    assert right(story, found) == [True] * 4 * len(directions)


def test_it_does_not_matter_how_little_of_a_lane_was_captured() -> None:
    """Only the second half of the last tensor was; the first one is missing, and says so."""
    story = Story()
    pipe = story.pipe()
    story.say(pipe, 5)
    story.begin()
    story.say(pipe, 30, 40)
    rows = story.rows()
    lane = [row for row in rows if row.flow == 2 * pipe.extra[0] and row.payload]
    rows.remove(lane[0])
    found = heard(play(story.network, rows=rows))
    [tensors] = found.values()
    assert tensors == ["missing", story.tensors[b"message 1"][1]]
    rows.remove(lane[1])  # nothing confirms that this connection is a lane of the pipe
    [tensors] = heard(play(story.network, rows=rows)).values()
    assert tensors == ["missing", "missing"]


@pytest.mark.parametrize("first_write", range(6))
def test_a_lane_whose_hello_was_captured(first_write: int) -> None:
    """The capture starts inside the handshakes."""
    story = Story()
    pipe = story.pipe()
    story.first = first_write
    for side in (True, False, True):
        story.say(pipe, 3, 4, from_client=side)
    found = story.tell()
    assert right(story, found) == [True] * 6


def test_empty_tensors_need_no_lane() -> None:
    story = Story()
    pipe = story.pipe()
    story.begin()
    story.say(pipe, 0, 0)
    assert story.tell(lost=pipe.extra) == {b"message 0": [b"", b""]}


# --- which connections are no candidates ---


def test_a_lane_that_was_not_captured_is_missing() -> None:
    story = Story()
    pipe = story.pipe()
    story.begin()
    story.say(pipe, 5)
    assert story.tell(lost=pipe.extra) == {b"message 0": ["missing"]}


@pytest.mark.parametrize(
    ("client", "server"),
    [("10.0.0.9", "10.0.0.2:5000"), ("10.0.0.1", "10.0.0.9:5000"), ("10.0.0.1", "10.0.0.2:5001")],
)
def test_connections_of_others_are_not_taken(client: str, server: str) -> None:
    """Their frames have just the right lengths, at just the right time."""
    story = Story()
    pipe = story.pipe()
    stranger = story.network.connect(client, server)
    story.network.write(stranger, b"hello")
    story.begin()
    story.say(pipe, 5)
    lane = next(w for w in reversed(story.network.writes) if w.connection == pipe.extra[0])
    story.network.write(stranger, lane.data)
    found = story.tell(lost=pipe.extra)
    # whatever goes to the same host on another port may be a lane of mpt: then nobody can tell
    doubt = "uncertain" if client == "10.0.0.1" and server.startswith("10.0.0.2") else "missing"
    assert found == {b"message 0": [doubt]}


def test_a_connection_that_the_other_side_opened_is_not_taken() -> None:
    """Both hosts use the same two ports; the SYN says who the client is."""
    story = Story()
    pipe = story.pipe()
    lane = pipe.extra[0]
    story.begin()
    story.say(pipe, 5)
    rows = story.rows(lost=[lane])
    flows = story.network.flows
    back = story.network.connect("10.0.0.2", "10.0.0.1:1")
    flows[back] = replace(flows[lane], source=flows[lane].destination, destination=flows[lane].source)
    data = next(w for w in reversed(story.network.writes) if w.connection == lane).data
    time_ns = story.now_ns
    syn = Segment(flow=2 * back, sequence=1000, flags=SYN, time_ns=time_ns)
    accept = Segment(flow=2 * back + 1, sequence=500, acknowledgment=1001, flags=SYN | ACK, time_ns=time_ns)
    forged = Segment(flow=2 * back + 1, sequence=501, acknowledgment=1001, payload=data, time_ns=time_ns)
    del flows[lane]
    flows.insert(lane, flows.pop())
    renumbered = [replace(row, flow=2 * lane + row.flow % 2) for row in (syn, accept, forged)]
    found = heard(play(story.network, rows=[*rows, *renumbered], end=0))
    assert found[b"message 0"][0] in ("missing", "uncertain")
    # without the SYN the same bytes are taken
    found = heard(play(story.network, rows=[*rows, renumbered[2]], end=0))
    assert right(story, found) == [True]


@pytest.mark.parametrize("wrong", [[6], [4], [5, 1], [0]])
def test_a_lane_whose_last_frames_are_others_is_not_taken(wrong: list[int]) -> None:
    story = Story()
    pipe = story.pipe()
    story.begin()
    story.say(pipe, 5, unsent=1)
    for length in wrong:
        story.network.write(pipe.extra[0], frame(b"x" * length))
    assert story.tell() == {b"message 0": ["uncertain"]}


# --- two pipes between the same hosts ---


def two(story: Story) -> tuple[PipeTalk, PipeTalk]:
    one, other = story.pipe(), story.pipe(name="worker1", first_id=2)
    story.say(one, 5)
    story.say(other, 5)
    story.begin()
    return one, other


def test_lengths_tell_two_pipes_apart() -> None:
    story = Story()
    one, other = two(story)
    story.say(one, 5, 6)
    story.say(other, 6, 5)
    assert right(story, story.tell()) == [True] * 4


@pytest.mark.parametrize(("lag_ns", "apart_ns"), [(1000, 10 * MS), (FLOOR_NS, int(MARGIN + 1) * FLOOR_NS)])
def test_time_tells_two_pipes_apart(lag_ns: int, apart_ns: int) -> None:
    story = Story()
    one, other = two(story)
    story.say(one, 5, lag_ns=lag_ns)
    story.say(other, 5, after_ns=apart_ns, lag_ns=lag_ns)
    assert right(story, story.tell()) == [True, True]


@pytest.mark.parametrize("apart_ns", [0, 1000, FLOOR_NS, int((MARGIN - 1) * FLOOR_NS) - 1000])
def test_where_time_does_not_tell_nobody_gets_anything(apart_ns: int) -> None:
    story = Story()
    one, other = two(story)
    story.say(one, 5, lag_ns=0)
    story.say(other, 5, after_ns=apart_ns, lag_ns=0)
    assert story.tell() == {b"message 2": ["uncertain"], b"message 3": ["uncertain"]}


def test_one_that_is_told_by_its_lengths_leaves_the_other_for_the_other() -> None:
    """One pipe could have either connection, the other only one of them."""
    story = Story()
    one, other = two(story)
    story.say(one, 9, lag_ns=0)
    story.say(one, 5, after_ns=0, lag_ns=0)
    story.say(other, 5, after_ns=0, lag_ns=0)
    rows = [row for row in story.rows() if not (row.flow == 2 * other.extra[0] and not row.payload)]
    found = heard(play(story.network, rows=rows))
    assert all(right(story, {k: v}) for k, v in found.items())


@pytest.mark.parametrize("near", [True, False])
def test_one_lane_for_two_pipes(near: bool) -> None:
    """The lane of one pipe was not captured: that pipe must not get the other one's."""
    story = Story()
    one, other = two(story)
    story.say(one, 5, lag_ns=0)
    story.say(other, 5, after_ns=10 * MS if near else 1000, lag_ns=0)
    found = story.tell(lost=one.extra)
    assert right(story, found) == [False, near]


@pytest.mark.parametrize("shown", [True, False])
def test_a_lane_whose_last_bytes_were_lost_is_still_possible(shown: bool) -> None:
    """A pipe's lane would be told by the bytes that were lost, and another lane, whose own pipe was not
    captured, would do: it must not be taken for that.
    """
    story = Story()
    one, other = two(story)
    story.say(one, 5)
    story.say(one, 5, from_client=False)  # message 3, of which only the tensor is captured
    story.say(one, 5, from_client=False)  # message 4, of which the tensor is not
    for side in (True, False):
        story.say(other, 5, from_client=side, after_ns=100 * MS)
    rows = story.rows(lost=[other.descriptor])
    answers, lane = 2 * one.descriptor + 1, 2 * one.extra[0] + 1
    last = max(at for at, row in enumerate(rows) if row.flow == lane and row.payload)
    assert rows[last].payload == frame(b"\x1d" * 5)
    rows = [
        row
        for at, row in enumerate(rows)
        if not (row.flow == answers and b"message 3" in row.payload) and (shown or at != last)
    ]
    found = heard(play(story.network, rows=rows))
    assert right(story, found) == [shown, shown]


# --- connections that were not closed in order ---


@pytest.mark.parametrize("end", [FIN, RST, 0])
@pytest.mark.parametrize("lost", [(2,), (1, 2), (1,), ()])
def test_messages_that_were_lost_last_may_have_had_the_last_frames(lost: tuple[int, ...], end: int) -> None:
    """Frames are counted from the end only if the end of the messages is there."""
    story = Story()
    pipe = story.pipe()
    story.begin()
    for _ in range(3):
        story.say(pipe, 5, after_ns=10 * MS)
    names = [b"message %d" % number for number in lost]
    rows = [row for row in story.rows(end=end) if not any(name in row.payload for name in names)]
    found = heard(play(story.network, rows=rows))
    # A loss in the middle leaves what is behind it, and what is before it unplaced.
    expected = {(2,): [False, False], (1, 2): [False], (1,): [False, True], (): [True] * 3}
    assert right(story, found) == expected[lost]


def test_a_message_that_began_before_the_capture_may_have_the_last_frame() -> None:
    """Of the last answer only the end was captured, but all of its tensor."""
    story = Story()
    pipe = story.pipe()
    story.say(pipe, 5, from_client=False)
    story.begin()
    story.say(pipe, 5)
    story.say(pipe, 5, from_client=False)
    rows = story.rows()
    cut = next(at for at, row in enumerate(rows) if b"message 2" in row.payload)
    half = len(rows[cut].payload) // 2
    late = replace(rows[cut], sequence=rows[cut].sequence + half, payload=rows[cut].payload[half:])
    found = heard(play(story.network, rows=[*rows[:cut], late, *rows[cut + 1 :]]))
    assert right(story, found) == [True]


@pytest.mark.parametrize("unsent", range(MAX_UNSENT + 2))
@pytest.mark.parametrize("end", [RST, 0])
def test_the_last_tensors_may_never_have_been_sent(unsent: int, end: int) -> None:
    story = Story()
    pipe = story.pipe()
    story.begin()
    lengths = list(range(3, 12))
    story.say(pipe, *lengths)
    del story.network.writes[len(story.network.writes) - unsent :]
    del story.times[len(story.network.writes) :]
    found = story.tell(end=end)
    placed = right(story, found)
    if unsent <= MAX_UNSENT:
        assert placed == [n < len(lengths) - unsent for n in range(len(lengths))]
        assert found[b"message 0"][len(lengths) - unsent :] == ["missing"] * unsent
    else:
        assert placed == [False] * len(lengths)


def test_equal_tensors_some_of_which_were_not_sent_are_told_by_nothing() -> None:
    """Whether the first or the last of them is missing decides which bytes belong to whom."""
    story = Story()
    pipe = story.pipe()
    story.say(pipe, 5, lag_ns=0)
    story.say(pipe, 5, lag_ns=0)
    story.begin()
    story.say(pipe, 5, 5, 5, lag_ns=0, after_ns=0)
    del story.network.writes[-1]
    del story.times[-1]
    right(story, story.tell(end=RST))


# --- anything ---


@st.composite
def stories(draw: st.DrawFn) -> tuple[Story, list[int]]:
    """Up to three pipes between two hosts, messages of few lengths at any time, a late start; and either one
    thread that is held up, or connections of which nothing was captured.
    """
    story = Story()
    pipes = [story.pipe(name=f"worker{n}", first_id=2 * n) for n in range(draw(st.integers(1, 3)))]
    waits = st.sampled_from([0, 1000, FLOOR_NS, 5 * FLOOR_NS, MS])
    lags = st.sampled_from([0, 1000, FLOOR_NS // 2])
    lengths = st.lists(st.integers(1, 3), max_size=3)
    count = draw(st.integers(1, 8))
    begin, held_up = draw(st.integers(0, count - 1)), draw(st.integers(0, count))
    for number in range(count):
        if number == begin:
            story.begin()
        story.say(
            draw(st.sampled_from(pipes)),
            *draw(lengths),
            from_client=draw(st.booleans()),
            first=draw(st.booleans()),
            after_ns=draw(waits),
            lag_ns=draw(waits if number == held_up else lags),
        )
    if held_up < count:
        return story, []
    return story, [n for pipe in pipes for n in pipe.extra if draw(st.booleans())]


@given(stories(), st.sampled_from([FIN, RST, 0]))
@settings(max_examples=examples(120), deadline=None)
def test_a_pairing_is_right_or_there_is_none(made: tuple[Story, list[int]], end: int) -> None:
    story, lost = made
    right(story, story.tell(end=end, lost=lost))


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_thread_that_is_held_up_once_does_not_decide(count: int) -> None:
    """The last tensor comes long before its descriptor, and looks like that of the message before."""
    story = Story()
    pipe = story.pipe()
    story.begin()
    for number in range(count):
        last = number == count - 1
        story.say(pipe, 5, first=last, after_ns=0, lag_ns=count * MS if last else 0)
    assert not any(right(story, story.tell(end=0)))


def test_a_lane_that_is_far_away_in_time_is_not_taken() -> None:
    """The only candidate, and of the right length, but more likely some other pipe's."""
    story = Story()
    pipe = story.pipe()
    story.begin()
    story.say(pipe, 5, lag_ns=600 * MS)
    assert story.tell() == {b"message 0": ["uncertain"]}
