"""The optional shortcut in C; everything else about the package is in pyproject.toml."""

from setuptools import Extension, setup

# Optional: where it cannot be compiled the package works the same, only slower.
setup(ext_modules=[Extension("otel_eval._native", ["otel_eval/_native.c"], optional=True)])
