"""Shapes of OTLP requests of any size, and what taking them in and evaluating them costs."""
