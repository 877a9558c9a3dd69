from accel_migrate.cli import main

main()
