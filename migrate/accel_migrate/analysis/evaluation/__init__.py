"""Evaluation loops: are their figures sums over rows, sums over batches, or only right on all of the data?"""
