"""Devices: which moves a script makes, of which batches, and what has to stay on the CPU."""
