"""What the exit codes mean, the same for every command; scripts rely on them.

A module of its own, since both `cli` and the commands below it need the numbers.
"""

OK = 0
DIFFERENT = 1
"""What was asked for was looked at and did not hold: a finding of severity error with --check, a message that
does not come out byte for byte with --roundtrip, a replay that came out otherwise, failed, or had nothing to
replay."""
USAGE = 2
UNREADABLE = 3
"""No capture, --strict and any problem, or a diff of two runs of which neither has a message."""
REFUSED = 4
"""A replay would run what nobody allowed; nothing was replayed."""
FAULT = 70
"""rpcinspect itself failed, against expectation; what it has written is not whole."""
INTERRUPTED = 130
