"""Files that are written: outputs, which appear whole at their places or grow there, and temporary ones.

Nothing else in the package opens a file for writing, but for what runs in processes of its own: the
recorder's C++ and startup modules, and live workers.
"""
