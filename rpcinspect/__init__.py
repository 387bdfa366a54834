"""rpcinspect: decode, replay and diff captured `torch.distributed.rpc` traffic."""

__version__ = "0.1.0"
