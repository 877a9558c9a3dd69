"""The files of a project together: what is imported from where, and which bindings reach a read."""
