"""Replay: captured messages are sent again, to live workers that this package starts.

Nothing here unpickles, and nothing here imports torch: that happens in `worker_main`, in processes of its
own.
"""
