"""Packages that are installed by their tests and never imported by this process."""

collect_ignore = ["package", "exporter_package"]
