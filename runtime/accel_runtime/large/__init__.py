"""Models larger than a device: who gets which layer, and weights that come when a layer runs and go after it."""
