"""Live workers: processes of torch, the protocol in which they are told what to do, and the programs that run
in them. Only these programs import torch and what the user has allowed.
"""
