"""Forwards what the receiver accepted to a backend, with the scores on the runs' own spans.

Requests are forwarded as bytes: nothing is decoded that is not changed.
"""
