"""Rewrites a plain PyTorch training script for an Accelerator, and says plainly what it left alone and why."""
