"""What a line says of RPC: a table of the texts of torch 1.6 to 2.14, and of what ends workers.

In: the text of a line, prefixes off. Out: a `Statement`, None for a line that is not RPC's. The texts are
those of torch/csrc/distributed/rpc/tensorpipe_agent.cpp, request_callback*.cpp and rref_context.cpp,
torch/csrc/distributed/autograd/context/container.cpp, torch/distributed/rpc/*.py and, for what ends a worker,
torch/distributed/elastic.
"""

from __future__ import annotations

import re

from msgspec import Struct

from rpcinspect.rpc.message import TYPE_NAMES

MAX_TEXT = 2000
"""Characters of a line that are kept."""


class Statement(Struct, frozen=True, kw_only=True):
    """What one line of a log states about RPC."""

    what: str
    """One of the names in `TEXTS`."""
    worker: str | None = None
    """Who says it, by name."""
    peer: str | None = None
    request: int | None = None
    """A message id."""
    type: int | None = None
    """A message type, which logs write as a number."""
    node: int | None = None
    """A worker's id: of the speaker where it tells its own error, else of the other one."""
    rank: int | None = None
    """Of torchrun's, of the process that it speaks of."""
    cause: str = ""

    @property
    def pair(self) -> tuple[str, str] | None:
        """Caller and callee of the request; None where one is not known."""
        if self.worker is None or self.peer is None:
            return None
        return (self.peer, self.worker) if self.what in SERVED else (self.worker, self.peer)

    @property
    def type_name(self) -> str | None:
        """The name of the message type."""
        return None if self.type is None else TYPE_NAMES.get(self.type, str(self.type))

    @property
    def lost(self) -> bool:
        """Whether the peer's end of a connection is gone."""
        return self.what in LOSSES and _GONE.search(self.cause) is not None


def read_text(text: str) -> Statement | None:
    """Returns the statement of a line; None if the line is not about RPC."""
    text = text[:MAX_TEXT].rstrip()
    if not _HINT.search(text):
        return None
    for what, pattern in TEXTS:
        match = pattern.search(text)
        if match is None:
            continue
        found = match.groupdict()
        numbers = {key: _int(found.get(key)) for key in ("request", "type", "node", "rank")}
        return Statement(
            what=what,
            worker=found.get("worker"),
            peer=found.get("peer"),
            cause=(found.get("cause") or "").strip(),
            **numbers,
        )
    return None


def _int(text: str | None) -> int | None:
    return int(text) if text else None


_AGENT = r"RPC agent for (?P<worker>[\w:-]{1,128}?) "
_FAILED = _AGENT + "encountered error when "
_TO = r"(?: request)?(?: #(?P<request>\d{1,19}))?(?: to (?P<peer>[\w:-]{1,128}?))?: (?P<cause>.*)"
_FROM = r"(?: from (?P<peer>[\w:-]{1,128}?))?: (?P<cause>.*)"
_OF = r" #(?P<request>\d{1,19}) (?:to|from) (?P<peer>[\w:-]{1,128})"


_INFO = r"On WorkerInfo\(id=(?P<node>\d{1,9}), name="
_NOT_RELEASED = (
    r"(?:Could not release Dist Autograd Context on node|"
    r"Failed to send RPC to clear Dist Autograd context to (?:all workers|worker id))"
)
_WRITTEN = (
    ("request-not-read", _FAILED + "reading incoming request" + _FROM),
    ("response-not-read", _FAILED + "reading incoming response" + _FROM),
    ("response-not-sent", _FAILED + "(?:sending response to|writing outgoing response)" + _TO),
    ("request-not-sent", _FAILED + "(?:sending|writing) outgoing" + _TO),
    ("pipe-not-accepted", _FAILED + "accepting incoming pipe: (?P<cause>.*)"),
    ("response-held-back", _AGENT + "won't send response to request" + _OF),
    ("request-sending", _AGENT + "is sending request" + _OF),
    ("request-sent", _AGENT + "sent request" + _OF),
    ("response-received", _AGENT + "received response" + _OF),
    ("request-received", _AGENT + "received request" + _OF),
    ("request-running", _AGENT + "is running request" + _OF + " in thread pool"),
    ("request-ran", _AGENT + "done running request" + _OF),
    ("response-sending", _AGENT + "is sending response to request" + _OF),
    ("response-sent", _AGENT + "done sending response to request" + _OF),
    ("pipe-accepted", _AGENT + r"accepted incoming pipe from (?P<peer>[\w:-]{1,128})"),
    ("agent", _AGENT + r"(?P<cause>(?:is|done|completed|exited) .*)"),
    ("request-not-read", "^Server read message: (?P<cause>.*)"),
    ("response-not-read", "^Read response error: (?P<cause>.*)"),
    ("request-not-sent", "^client write error: (?P<cause>.*)"),
    ("response-not-sent", "^sending (?:error )?response failed: (?P<cause>.*)"),
    ("pipe-not-accepted", "^got error from listener: (?P<cause>.*)"),
    ("request-failed", r"Received error while processing request type (?P<type>\d{1,9}): (?P<cause>.*)"),
    ("request-failed", r"Request type (?P<type>\d{1,9}) not supported"),
    ("agent-over", r"tried to send\(\) a message of type (?P<type>\d{1,9}) (?P<cause>but .*)"),
    ("raised", rf"^{_INFO}(?P<worker>[\w:-]{{1,128}})\):"),
    (
        "raised-elsewhere",
        r"(?P<cause>On WorkerInfo\(id=(?P<node>\d{1,9}), name=(?P<peer>[\w:-]{1,128})\):.*)",
    ),
    ("raised-elsewhere", r"(?P<cause>Error on Node (?P<node>\d{1,9}): .*)"),
    ("timed-out", r"(?P<cause>(?:RPCErr:\d+:)?RPC ran for more than set timeout \(\d+ ms\).*)"),
    ("timed-out", r"(?P<cause>RPCErr:1:.*)"),
    ("context-not-released", _NOT_RELEASED + r":? ?(?P<node>\d{1,9})?:? ?(?P<cause>.*)"),
    ("context-gone", r"(?P<cause>Autograd context no longer valid!.*)"),
    ("rrefs-left", r"(?P<cause>Detected RRef Leaks during shutdown.*|Leaking RRef .*)"),
    ("rrefs-left", r"(?P<cause>Timed out waiting for pending (?:UserRRefs|OwnerRRefs) .*)"),
    ("rref", r"(?P<cause>RRef creation via rpc\.remote\(\) timed out.*)"),
    ("rref", r"(?P<cause>Ignoring duplicate request to (?:delete child UserRRef|add Fork) .*)"),
    ("barrier-failed", r"(?P<cause>Failed to complete barrier|Failed to respond to 'Shutdown Proceed'.*)"),
    ("token", r"(?P<cause>Group membership token \S{1,200} timed out waiting .*)"),
    ("retried", r"(?P<cause>Send try \d+ failed|The RPC has not succeeded after .*)"),
    ("connection", r"(?P<cause>.*\(this error originated at tensorpipe/.*)"),
    ("ended", r"(?P<cause>failed \(exitcode: -?\d+\) local_rank: (?P<rank>\d{1,9}) .*)"),
    ("ended", r"(?P<cause>Sending process \d+ closing signal \w+|Signal \d+ \(\w+\) received by PID \d+)"),
    ("crashed", r"^(?P<cause>Fatal Python error: .*|terminate called .*|Segmentation fault.*|Killed)$"),
)

TEXTS = tuple([(what, re.compile(pattern, re.ASCII)) for what, pattern in _WRITTEN])
"""(what, pattern), the first that fits counts. `worker` says it, `peer` is the other end."""

SERVED = frozenset(
    {
        *("response-not-sent", "response-held-back", "request-received", "request-running"),
        *("request-ran", "response-sending", "response-sent", "request-not-read"),
    }
)
"""The request that these speak of is the peer's."""
LOSSES = frozenset({"request-not-read", "response-not-read", "response-not-sent", "request-not-sent"})
_GONE = re.compile(r"(?i)\beof\b|pipe closed|broken pipe|epipe|econnreset|connection reset")
_HINT = re.compile(
    r"RPC|rpc|Autograd [Cc]ontext|RRef|WorkerInfo\(|originated at tensorpipe|processing request type|on Node|"
    r"Failed to (?:complete|respond)|Group membership|Send try|exitcode: |closing signal|\) received by PID|"
    r"^Fatal Python|^terminate called|^Segmentation|^Killed$|^Request type|^Server read|^Read response|"
    r"^client write|^sending (?:error )?response|^got error from|tried to send"
)
"""Cheap: most lines of a log are somebody else's."""
