"""Replay: captured messages are sent again, to live workers that this package starts.

Nothing here unpickles, and nothing here imports torch: that happens in processes of their own, see
`workers/`.

    planning/      what would be sent, by whom, and what can't be
    peers/         workers that exist only on the wire
    workers/       processes of torch
    playing/       one session, carried out
    agent/         torch's own agent in the place of a played worker
    session_run    one session, from the start of its workers to their end
    replayer       all sessions of a plan

Each imports from those above it; the plan asks `agent` what it can't
do, and the process of a live worker may become that of an agent.
"""
