"""Spans of this process: counted while they are open, read when their trace is complete."""
