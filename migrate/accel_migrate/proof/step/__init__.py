"""A training step, proven for every number of processes: what the recorder traced, read by a few laws."""
