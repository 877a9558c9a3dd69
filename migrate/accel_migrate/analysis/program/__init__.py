"""The files as they are written: scopes, what each name is bound to, imports, and which bindings reach a read."""
