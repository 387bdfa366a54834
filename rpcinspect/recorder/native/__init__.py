"""The agent that records, in C++, and its build.

`queue.h` says what the queue does, `agent.cpp` what is recorded; docs/log-format.md tells the records.
`build.py` runs in any Python from 3.8 on that has torch, maybe without rpcinspect.
"""
