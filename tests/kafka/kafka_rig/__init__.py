"""A real broker, members of a consumer group in processes of their own, and what is done to
them.
"""
