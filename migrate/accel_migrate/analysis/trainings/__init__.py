"""Trainings: which backward passes belong together, what takes part in each, and all that rules ask about it."""
