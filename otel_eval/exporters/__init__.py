"""Where scores go: log events, metrics, span events, JSON Lines, OTLP.

Each sink takes reports by `emit`, delivers by `flush` and ends by `close`. None knows where spans come from, and none is
loaded before it is used: OTLP brings gRPC with it.
"""
