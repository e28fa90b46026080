"""The package is installed by its test, never imported by this process."""

collect_ignore = ["package"]
