"""Text logs that workers write themselves → what they say of RPC. Pure.

Lines come in, `WorkerLog`s go out. When that was in the capture's time is for `checks/worker_logs.py`.
"""
