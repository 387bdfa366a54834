import pathlib

class Report:
    """Lines that the trainers write."""
    def __init__(self):
        self.lines = []
    def write_text(self, text):
        self.lines.append(text)

def log_file(name):
    """Where a worker logs to."""
    return pathlib.Path("/opt/demo/attack5/canary") / name

def open_log(name):
    """The log of a worker, to be used from others."""
    import torch.distributed.rpc as rpc
    return rpc.RRef(log_file(name))
