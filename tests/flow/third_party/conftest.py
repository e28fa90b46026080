"""The package is somebody else's: it is installed by its test, never imported by this process."""

collect_ignore = ["package"]
