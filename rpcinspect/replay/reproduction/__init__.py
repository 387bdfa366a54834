"""What a script of plain PyTorch would have to do to make the captured calls again. Which words it is written
in, `views/` decides.
"""
