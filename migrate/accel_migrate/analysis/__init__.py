"""Reads scripts and never edits them: answers what the rules may ask."""
