"""Files: weights and all else that a training writes or reads back, and by which of its processes."""
