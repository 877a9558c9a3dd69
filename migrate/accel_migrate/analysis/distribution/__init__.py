"""Distribution by hand: ranks, process groups, samplers, wrappers, spawned workers, and what takes their place."""
