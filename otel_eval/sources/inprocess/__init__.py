"""Read spans of this process: they are counted while they are open, and read when their trace is
complete.
"""
