"""Proof by running: the original and the migrated script are trained side by side and compared, loss by loss."""
