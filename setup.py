"""The optional shortcuts in C; everything else about the package is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

# Optional: where they cannot be compiled the package works the same, only slower.
PARTS = glob("otel_eval/c/*/*.h")
NAMES = ("_native", "_forest")
setup(ext_modules=[Extension(f"otel_eval.{name}", [f"otel_eval/{name}.c"], depends=PARTS, optional=True) for name in NAMES])
