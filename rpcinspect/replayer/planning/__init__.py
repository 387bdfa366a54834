"""What would be sent, by whom, in what order, what can't be and why; nothing is started.

Plain records and what makes them of a session. The gate is here: what of the captured names a live process
may import. What torch's agent can't do is asked of `agent/`.
"""
