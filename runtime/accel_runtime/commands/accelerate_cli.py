"""The command by Accelerate's path, for `python -m accelerate.commands.accelerate_cli`."""

from accel_runtime.cli import main

if __name__ == "__main__":
    main()
