"""Data loaders on many processes: who gets which samples, in what order, and on which device."""
