"""What each name holds to training (model, optimizer, loader ...), where that was made, and what a loss runs through.

Each question has one answer, which nobody works out again:

- what is an expression, and of which class of the project: `Roles.value`; what does a call run: `Roles.target`
- who calls a function: `Roles.sites`, or `CallGraph.sites` as one entry of several sees them
- what do callers hand over for a parameter: `CallGraph.handed`; with the calls that leave it out: `CallGraph.given`
- what does a function give back: `Definition.returned`; is a class a module of torch: `Program.is_torch_module`
- which names was an object handed over by, back to where it was built: `provenance.chain`
- which bindings may a name hold here: `reaching`; which calls built it: `constructions`
- where does a value come from: `sources`, the one walk back; what may it be or keep: its `contents`
- which device does an expression mean: `origins.where`; what did a loss run through: `LossPath`
"""
