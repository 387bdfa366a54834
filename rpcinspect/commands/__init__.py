"""One module per command: opens the inputs, picks the view, says the exit code. No decoding and no layout
here.
"""
