"""Leave out the programs that tests run as processes."""

collect_ignore_glob = ["*_program.py"]
