"""Mixed precision by hand: autocast regions and gradient scalers, and the `mixed_precision=` that takes their place."""
