import sys

# `python -m` puts the current folder first: a user's json.py or click.py there must not run inside this tool.
if not sys.flags.safe_path:
    del sys.path[0]

from accel_migrate.cli import main

main()
