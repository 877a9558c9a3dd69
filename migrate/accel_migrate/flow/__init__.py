"""What a program does when it runs, read from its `ast`: the order of statements, and what names mean where.

`scopes` has the one model of a file that the analysis and the checks both stand on: scopes, what each name is bound to,
what an imported name stands for. `cfg` answers for one scope: what runs before, after, again, and under which condition.
`definitions` answers whether a name is bound where it is read. `program` goes from file to file, `calls` follows objects
through them. All of them know Python and nothing of training.
"""
