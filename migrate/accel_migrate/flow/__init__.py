"""What a program does when it runs, read from its `ast`: the order of statements, and what names mean where.

`cfg` answers for one scope: what runs before, after, again, and under which condition. `definitions` answers for one
file: which scope binds a name, and whether it is bound where it is read. Both know Python and nothing of training.
"""
