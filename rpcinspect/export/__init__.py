"""A run in the files of others: captures that decode by themselves, as it was, redacted or shrunk; traces for
Perfetto, tables in Parquet, tensors in safetensors, graphs for Graphviz, scripts of plain PyTorch.
"""
