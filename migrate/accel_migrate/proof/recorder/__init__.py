"""Loaded into the interpreter of the scripts, not into this one: watches what they train and changes neither."""
