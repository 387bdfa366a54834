"""What runs inside the processes of a recorded command: in any Python from 3.8 on, maybe without rpcinspect.

This folder is put in front of PYTHONPATH, so that each interpreter that starts imports its `sitecustomize`.
The modules here use the standard library only, are loaded by their path and find each other by plain names.
Nothing else of ours may import them.
"""
