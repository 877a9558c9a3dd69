from accel_runtime.cli import main

main()
