"""Where the Accelerator is made and objects are prepared, how it gets to its readers, and which device it is told."""
