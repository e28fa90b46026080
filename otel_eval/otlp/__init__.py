"""OTLP: reading and writing requests, and the client that sends them."""
