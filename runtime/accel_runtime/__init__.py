"""The runtime that a migrated script runs on: an Accelerator over CPU, GPUs, machines and TPUs."""
