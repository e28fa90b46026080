"""A load with sequence numbers, the real receiver, and the books that must balance whatever fault
is done to it.
"""
