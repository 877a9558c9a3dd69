"""What each variable is to training: found by what it is built from, what it is passed as, and how it is used."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from accel_migrate.analysis.values.observed import Observed, backwards_in, observed_in
from accel_migrate.facts import Facts
from accel_migrate.flow import torch_api
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import all_arguments, arguments_at, picked, positional_parameters, unparse
from accel_migrate.flow.once import once
from accel_migrate.flow.program import ClassDefinition, Definition, FunctionDefinition, Program
from accel_migrate.flow.scopes import Binding, Function, Module, Variable
from accel_migrate.flow.torch_api import ITSELF, OPTIMIZER_NAME, itself, made_by

Sites = dict[Function, list[tuple[Module, ast.Call]]]


class Role(int):
    """What an object is to training, as bits of a plain number: it is asked some thousand times for each script."""

    NONE: ClassVar[Role]
    MODEL: ClassVar[Role]
    OPTIMIZER: ClassVar[Role]
    LOADER: ClassVar[Role]
    SCHEDULER: ClassVar[Role]
    DEVICE: ClassVar[Role]
    SCALER: ClassVar[Role]
    SAMPLER: ClassVar[Role]  # a DistributedSampler
    CRITERION: ClassVar[Role]
    BATCH: ClassVar[Role]  # what a loader yields, or a part of it
    OUTPUT: ClassVar[Role]  # what a model returns
    AUTOCAST: ClassVar[Role]
    ITERATOR: ClassVar[Role]  # iter(loader)
    LOADERS: ClassVar[Role]  # a dictionary of loaders

    if TYPE_CHECKING:

        def __and__(self, other: int, /) -> Role: ...
        def __or__(self, other: int, /) -> Role: ...


for _number, _name in enumerate(Role.__annotations__):
    setattr(Role, _name, 1 << _number >> 1)


class Value(NamedTuple):
    """What is known of an expression: its roles, its parts if it is a tuple, its class if it is the project's own."""

    role: Role = Role.NONE
    items: tuple[Value, ...] | None = None
    owner: ast.ClassDef | None = None
    module: Module | None = None

    def joined(self, other: Value) -> Value:
        items = self.items or other.items
        if self.items and other.items and len(self.items) == len(other.items):
            items = tuple(a.joined(b) for a, b in zip(self.items, other.items))
        return Value(self.role | other.role, items, self.owner or other.owner, self.module or other.module)

    def at(self, path: tuple[int, ...]) -> Value:
        value = self
        for index in path:
            if value.items is not None and index < len(value.items):
                value = value.items[index]
            else:
                value = Value(value.role & (Role.BATCH | Role.OUTPUT))
        return value


UNKNOWN = Value()

_SAME_OBJECT = ITSELF | {"apply"}
_LEAVES_DEVICE = {"cpu", "numpy", "tolist", "item"}
# What the kinds of the table of libraries are to training.
_MADE = {
    "model": Role.MODEL, "criterion": Role.CRITERION, "optimizer": Role.OPTIMIZER, "loader": Role.LOADER,
    "scheduler": Role.SCHEDULER, "scaler": Role.SCALER, "device": Role.DEVICE, "autocast": Role.AUTOCAST,
    "sampler": Role.SAMPLER,
}  # fmt: skip
# What the kinds that a run shows are to training. A frozen model is not trained.
_OBSERVED = {
    "model": Role.MODEL, "module without weights": Role.CRITERION, "optimizer": Role.OPTIMIZER, "loader": Role.LOADER,
    "scheduler": Role.SCHEDULER, "scaler": Role.SCALER,
}  # fmt: skip


class Roles:
    """The roles of every variable, brought to a fixed point over assignments, calls and returns."""

    def __init__(self, project: Program, facts: Facts | None = None) -> None:
        self.project = project
        self.observed: dict[Variable, Observed] = {}  # what is known from a run alone
        self.computed: dict[
            Variable, Observed
        ] = {}  # of models, what they hold or that a loss is computed through them, from a run alone
        self._backwards: dict[tuple[Module, int], frozenset[Observed]] = {}
        self.followed: set[Variable] = set()  # whose object comes from another variable, as a run showed
        self._seen: dict[Variable, Observed] = {}  # all that a run showed, where the code tells no other
        self.known: dict[Variable, Value] = {}
        self._values: dict[ast.expr, Value] = {}  # of expressions, as long as nothing is learned
        self._targets: dict[ast.Call, Definition | None] = {}
        self._work: list[tuple[Module, Variable, Binding]] = []
        self._inherited: list[tuple[Variable, Variable]] = []  # attributes with those of a base class that they are
        self._settled = False
        for module in project.modules:
            self._collect(module)
        converged = self._settle()
        # Now it is known of what class the objects are that functions are handed, and so what their methods are.
        self._settled = True
        if not converged or self._knows_more_targets():
            self._targets = {call: target for call, target in self._targets.items() if target is not None}
            self._settle()
        if facts is not None:
            self._observe(facts)

    def _observe(self, facts: Facts) -> None:
        """Take what a run showed where the code does not show it, and what follows from that."""
        for seen in observed_in(self.project, facts):
            role = _OBSERVED.get(seen.kind, Role.NONE)
            known = self.of(seen.variable)
            if not known and seen.kind != "options":
                self.observed[seen.variable] = seen
                self._learn(seen.variable, Value(role))
            elif seen.kind == "optimizer" and known & role:
                self.observed[seen.variable] = seen  # whose parameters it updates
            if not known or known & role:
                self._seen[seen.variable] = seen
        self._backwards = backwards_in(self.project, facts)
        self._targets = {call: target for call, target in self._targets.items() if target is not None}
        self._settle()

    def computed_through(self, module: Module, line: int) -> list[Variable]:
        """The models that a run showed a loss to be computed through; asked for where the code does not show it."""
        seen = {each.variable: each for each in self._backwards.get((module, line), ()) if self.of(each.variable)}
        self.computed |= seen
        return list(seen)

    def held_by(self, model: Variable) -> frozenset[Variable]:
        """The models whose parameters another one had in a run; asked for where the code does not show it."""
        seen = self._seen.get(model)
        if seen is None or seen.kind != "model" or not seen.over:
            return frozenset()
        self.computed[model] = replace(seen, kind="model that holds the parameters of others")
        return seen.over

    @property
    def taken(self) -> tuple[Observed, ...]:
        """All that is known from a run alone."""
        return (*self.observed.values(), *self.computed.values())

    def same(self, variable: Variable) -> tuple[Variable, ...]:
        """The variables that held the same object in a run; asked for where the code does not show where it comes from."""
        seen = self._seen.get(variable)
        if seen is None or not seen.same:
            return ()
        self.observed[variable] = seen
        self.followed.add(variable)
        return seen.same

    # ---- questions

    def value(self, module: Module, node: ast.expr) -> Value:
        if node not in self._values:
            self._values[node] = self._evaluate(module, node, 0)
        return self._values[node]

    def role(self, module: Module, node: ast.expr) -> Role:
        return self.value(module, node).role

    def of(self, variable: Variable | None) -> Role:
        return self.known.get(variable, UNKNOWN).role if variable is not None else Role.NONE

    def target(self, module: Module, call: ast.Call) -> Definition | None:
        """The project's function or class that a call runs."""
        if call not in self._targets:
            self._targets[call] = self._find_target(module, call)
        return self._targets[call]

    def function(self, module: Module, node: ast.AST | None) -> FunctionDefinition | None:
        """The project's function that a call runs; None for a class, and for what is not the project's or no call."""
        found = self.target(module, node) if isinstance(node, ast.Call) else None
        return found if isinstance(found, FunctionDefinition) else None

    def made(self, module: Module, node: ast.AST | None) -> ClassDefinition | None:
        """The project's class that a call makes an object of."""
        found = self.target(module, node) if isinstance(node, ast.Call) else None
        return found if isinstance(found, ClassDefinition) else None

    def forward_of(self, module: Module, called: ast.expr, *names: str) -> Definition | None:
        """What runs when an object of the project's own is called: its forward, or a method of another of these names."""
        value = self.value(module, called)
        owner = Definition(value.module, value.owner) if value.owner is not None and value.module is not None else None
        found = [self.project.method(owner, name) for name in names or ("forward",)] if owner is not None else []
        return next((method for method in found if method is not None), None)

    def run_by(self, module: Module, call: ast.Call) -> FunctionDefinition | None:
        """The project's function that a call runs; of a class, what initialises its objects."""
        made = self.made(module, call)
        found = self.project.initializer(made) if made is not None else self.target(module, call)
        return found if isinstance(found, FunctionDefinition) else None

    @cached_property
    def sites(self) -> Sites:
        """The calls of each function of the project; those of a class run what initialises its objects."""
        found: Sites = {}
        for module, call in self.project.calls:
            if (run := self.run_by(module, call)) is not None:
                found.setdefault(run.node, []).append((module, call))
        return found

    # ---- fixed point

    def _collect(self, module: Module) -> None:
        bound = module.bound()
        self._work += [(module, v, b) for v, b in bound if b.value is not None and b.kind != "import"]
        self._inherited += self.project.attributes_inherited(module)

    def _knows_more_targets(self) -> bool:
        """Whether a call is known by now to run a function of the project, and was not."""
        if not any(value.owner is not None for value in self.known.values()):
            return False
        return any(
            self._targets.get(call) is None and self._find_target(module, call) is not None
            for module, call in self.project.calls
        )

    def _settle(self) -> bool:
        """Whether all is known that can be."""
        for module in self.project.modules:
            self._mark_uses(module)
        calls = [(module, call) for module, call in self.project.calls]
        for _ in range(8):
            changed = False
            for module, variable, binding in self._work:
                assert binding.value is not None
                value = self._evaluate(module, binding.value, 0)
                if binding.kind in ("for", "comprehension"):
                    value = self._element(module, binding.value, value)
                elif binding.kind == "assign" and len(binding.path) == 1 and value == UNKNOWN:
                    if not isinstance(module.parents[binding.target], ast.Starred):
                        changed |= self._learn(variable, self._one_of_list(module, binding.value))
                changed |= self._learn(variable, value.at(binding.path))
            for own, above in self._inherited:
                changed |= self._learn(own, self.known.get(above, UNKNOWN))
            for module, call in calls:
                changed |= self._pass_arguments(module, call)
            if not changed:
                return True
            calls = [(module, call) for module, call in calls if self._targets[call] is not None]
        return False

    def _one_of_list(self, module: Module, unpacked: ast.expr) -> Value:
        """A loader of `first, second = loaders`, a list that is filled with loaders, unpacked, and read by nobody else."""
        variable = module.variable(unpacked) if isinstance(unpacked, ast.Name) else None
        lists = [binding.value for binding in module.bindings(variable)] if variable is not None else [unpacked]
        if not all(isinstance(each, ast.ListComp) or (isinstance(each, ast.List) and not each.elts) for each in lists):
            return UNKNOWN
        held = [each.elt for each in lists if isinstance(each, ast.ListComp)]
        for name in module.walk(module.tree, ast.Name) if variable is not None else ():
            if not isinstance(name.ctx, ast.Load) or name is unpacked or module.variable(name) != variable:
                continue
            above = module.parents[name]
            call = module.parents[above]
            if not (isinstance(above, ast.Attribute) and above.attr == "append" and isinstance(call, ast.Call)):
                return UNKNOWN
            held += call.args
        loaders = [self._evaluate(module, each, 1).role & Role.LOADER for each in held]
        return Value(Role.LOADER) if loaders and all(loaders) else UNKNOWN

    def _learn(self, variable: Variable, value: Value) -> bool:
        if value == UNKNOWN:
            return False
        old = self.known.get(variable, UNKNOWN)
        new = old.joined(value)
        if new != old:
            self.known[variable] = new
            self._values.clear()
            return True
        return False

    def _pass_arguments(self, module: Module, call: ast.Call) -> bool:
        target = self.target(module, call)
        if target is None:
            return False
        if isinstance(target.node, ast.ClassDef):
            constructor = self.project.method(target, "__init__")
            if constructor is None:
                return False
            target = constructor
        changed = False
        for name, argument in arguments_of(call, target):
            parameter = Variable(target.scope, name)
            changed |= self._learn(parameter, self._evaluate(module, argument, 0))
            variable = module.variable(argument)
            if variable is not None and not self.of(variable):
                # What the function does with it tells what it is: a model from an unknown factory, say.
                used_as = self.known.get(parameter, UNKNOWN)
                if used_as.role & (Role.MODEL | Role.OPTIMIZER | Role.LOADER | Role.SCHEDULER):
                    changed |= self._learn(variable, Value(used_as.role))
        return changed

    def _mark_uses(self, module: Module) -> None:
        """Roles that use alone gives away, whatever built the object."""
        stepped: dict[Variable, set[str]] = {}
        for call in module.calls:
            function = call.func
            if isinstance(function, ast.Attribute):
                variable = module.variable(function.value)
                if function.attr in ("step", "zero_grad", "get_last_lr", "state_dict") and variable is not None:
                    stepped.setdefault(variable, set()).add(function.attr)
                if (
                    function.attr == "step"
                    and len(call.args) == 1
                    and re.search(r"scaler", unparse(function.value), re.I)
                ):
                    optimizer = module.variable(call.args[0])  # scaler.step(optimizer)
                    if optimizer is not None:
                        self._learn(optimizer, Value(Role.OPTIMIZER))
            dotted = module.full_name(function)
            if self._is_optimizer_class(module, call) or dotted.startswith("torch.nn.utils.clip_grad"):
                for model in self._models_of_parameters(module, call):
                    self._learn(model, Value(Role.MODEL))
            if torch_api.is_parallel(dotted) and call.args:
                wrapped = module.variable(call.args[0])
                if wrapped is not None:
                    self._learn(wrapped, Value(Role.MODEL))
        for variable, methods in stepped.items():
            if {"step", "zero_grad"} <= methods or ("step" in methods and re.search(r"optim", variable.name, re.I)):
                self._learn(variable, Value(Role.OPTIMIZER))
            elif "step" in methods and re.search(r"sched", variable.name, re.I):
                self._learn(variable, Value(Role.SCHEDULER))
        for node in module.walk(module.tree, ast.For):
            variable = module.variable(self._looped_over(module, node.iter))
            if variable is not None and re.search(r"(loader|_dl|dataloader|_iter)s?$", variable.name, re.I):
                bindings = module.bindings(variable)
                may_be = any(b.value is None or isinstance(b.value, ast.Call) for b in bindings)
                if may_be and not self.may_be_of_batches(module, variable):
                    self._learn(variable, Value(Role.LOADER))

    def may_be_of_batches(self, module: Module, variable: Variable) -> bool:
        """Whether a library may make what a name holds, or is handed, which yields batches and is no DataLoader."""
        function = variable.scope.node
        name = function.name if isinstance(function, Function) and module.is_parameter(variable) else None
        sites = [(owner, call) for owner, call in self.project.calls if name and _name_of(call.func) == name]
        held = [(module, binding.value, binding.path) for binding in module.bindings(variable)]
        held += [
            (m, each, ())
            for m, _, each in (given_by({function: sites}, variable) if isinstance(function, Function) else ())
        ]
        return any(self._yields_batches(owner, value, path) for owner, value, path in held if value is not None)

    def _yields_batches(self, module: Module, value: ast.expr, path: tuple[int, ...]) -> bool:
        value = picked(value, path)
        if isinstance(value, ast.Name):
            bound = [b for b in module.bindings_of(value) if isinstance(b.value, ast.Call)]
            return any(self._yields_batches(module, b.value, b.path) for b in bound if b.value is not None)
        if not isinstance(value, ast.Call):
            return False
        target = self.target(module, value)
        if target is None:
            return made_by(module.full_name(value.func)) == "batches"
        return any(self._yields_batches(target.module, given, path) for given in target.returned)

    def _looped_over(self, module: Module, looped: ast.expr) -> ast.expr:
        """What a loop goes over in the end: `loader` in `tqdm(enumerate(loader))`, also when that has a name."""
        for _ in range(6):
            values = [b.value for b in module.bindings_of(looped)]
            call = values[0] if len(values) == 1 and isinstance(looped, ast.Name) else looped
            if not isinstance(call, ast.Call) or not call.args:
                return looped
            if _name_of(call.func) not in ("enumerate", "iter") and not is_transparent(module, call):
                return looped
            looped = call.args[0]
        return looped

    def _models_of_parameters(self, module: Module, call: ast.Call) -> list[Variable]:
        found = []
        for argument in self._parameters_given(module, call):
            for node in module.walk(argument, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr in (
                    "parameters",
                    "named_parameters",
                    "trainable_parameters",
                ):
                    owner = node.func.value
                    # `model.features.parameters()` speaks of the model
                    while isinstance(owner, ast.Attribute) and module.variable(owner) not in self._bound(module):
                        owner = owner.value
                    variable = module.variable(owner)
                    if variable is not None and not (
                        isinstance(owner, ast.Name) and owner.id == module.scope(owner).self_name
                    ):
                        found.append(variable)
        return found

    def _parameters_given(self, module: Module, call: ast.Call) -> list[ast.expr]:
        """The arguments of an optimizer, and what the variables among them were made from."""
        found: list[ast.expr] = []
        for argument in all_arguments(call):
            found.append(argument)
            found += [b.value for b in module.bindings_of(argument) if b.value is not None]
        return found

    def _bound(self, module: Module) -> dict[Variable, list[Binding]]:
        return module.attribute_bindings

    # ---- expressions

    def _evaluate(self, module: Module, node: ast.expr, depth: int) -> Value:
        if depth > 12:
            return UNKNOWN
        if type(node) is ast.Name:
            variable = module.variable(node)
            if variable is not None and module.is_import(variable):
                return self._of_another_file(module, node)
            return self.known.get(variable, UNKNOWN) if variable is not None else UNKNOWN
        if type(node) is ast.Call:
            return self._call(module, node, depth + 1)
        if type(node) is ast.Attribute:
            variable = module.variable(node)
            if variable is not None and variable in self.known:
                return self.known[variable]
            if variable is None and module.qualified(node) is not None:
                return self._of_another_file(module, node)
            base = self._evaluate(module, node.value, depth + 1)
            if base.role & Role.MODEL and node.attr == "module":
                return base
            return Value(base.role & (Role.BATCH | Role.OUTPUT))
        if isinstance(node, ast.Tuple | ast.List):
            items = tuple(_flat(self._evaluate(module, item, depth + 1), 2) for item in node.elts)
            return Value(items=items) if any(item != UNKNOWN for item in items) else UNKNOWN
        if type(node) is ast.IfExp:
            return self._evaluate(module, node.body, depth + 1).joined(self._evaluate(module, node.orelse, depth + 1))
        if type(node) is ast.BoolOp:
            value = UNKNOWN
            for part in node.values:
                value = value.joined(self._evaluate(module, part, depth + 1))
            return value
        if type(node) is ast.Subscript:
            base = self._evaluate(module, node.value, depth + 1)
            if base.role & Role.LOADERS:
                return Value(Role.LOADER)
            return Value(base.role & (Role.BATCH | Role.OUTPUT))
        if isinstance(node, ast.NamedExpr | ast.Await):
            return self._evaluate(module, node.value, depth + 1)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return Value(self._evaluate(module, node.elt, depth + 1).role & Role.BATCH)
        if type(node) is ast.DictComp:
            made = self._evaluate(module, node.value, depth + 1).role
            return Value(Role.LOADERS if made & Role.LOADER else made & Role.BATCH)
        if type(node) is ast.Dict and node.values:
            held = [self._evaluate(module, value, depth + 1).role for value in node.values]
            return Value(Role.LOADERS) if all(role & Role.LOADER for role in held) else UNKNOWN
        if (
            type(node) is ast.Constant
            and isinstance(node.value, str)
            and node.value[:3] in ("cud", "cpu", "mps", "xpu")
            and re.fullmatch(r"(cuda|cpu|mps|xpu)(:\d+)?", node.value)
        ):
            return Value(Role.DEVICE)
        if type(node) is ast.JoinedStr and node.values and isinstance(node.values[0], ast.Constant):
            return Value(Role.DEVICE) if str(node.values[0].value).startswith("cuda:") else UNKNOWN
        return UNKNOWN

    def _of_another_file(self, module: Module, node: ast.expr) -> Value:
        """What `config.DEVICE` or an imported name is in the file that sets it."""
        variable = self.project.imported_variable(module, module.full_name(node))
        return self.known.get(variable, UNKNOWN) if variable is not None else UNKNOWN

    def _element(self, module: Module, iterated: ast.expr, value: Value) -> Value:
        """What a `for` gives out of the thing it loops over."""
        if value.items is not None and not value.role:
            joined = UNKNOWN
            for item in value.items:
                joined = joined.joined(item)
            return joined
        if value.role & (Role.LOADER | Role.ITERATOR):
            return Value(Role.BATCH)
        if value.role & Role.BATCH:
            return Value(Role.BATCH, value.items)
        if isinstance(iterated, ast.Call):
            name = _name_of(iterated.func)
            if name == "enumerate" and iterated.args:
                inner = iterated.args[0]
                return Value(items=(UNKNOWN, self._element(module, inner, self._evaluate(module, inner, 1))))
            if name == "zip":
                return Value(items=tuple(self._element(module, a, self._evaluate(module, a, 1)) for a in iterated.args))
            if is_transparent(module, iterated) and iterated.args:
                inner = iterated.args[0]
                return self._element(module, inner, self._evaluate(module, inner, 1))
        return UNKNOWN

    def _call(self, module: Module, call: ast.Call, depth: int) -> Value:
        function = call.func
        dotted = module.qualified(function)
        if dotted is not None:
            value = self._imported(module, call, dotted, depth)
            if value is not None:
                return value
        target = self.target(module, call)
        if target is not None:
            return self._project_call(target, depth)
        name = _name_of(function)
        if isinstance(function, ast.Attribute):
            base = self._evaluate(module, function.value, depth)
            if base.role & (Role.MODEL | Role.CRITERION) and name in _SAME_OBJECT:
                return base
            if base.role & (Role.BATCH | Role.OUTPUT) and name not in _LEAVES_DEVICE:
                return Value(base.role & (Role.BATCH | Role.OUTPUT))
            if base.role & Role.MODEL and name not in (
                "parameters",
                "named_parameters",
                "state_dict",
                "children",
                "modules",
            ):
                return Value(Role.OUTPUT)
            if base.role & Role.ITERATOR and name in ("next", "__next__"):
                return Value(Role.BATCH)
        if name in ("iter", "cycle") and call.args:
            base = self._evaluate(module, call.args[0], depth)
            if base.role & (Role.LOADER | Role.ITERATOR):
                return Value(Role.ITERATOR)
        if name == "next" and call.args:
            base = self._evaluate(module, call.args[0], depth)
            if base.role & (Role.LOADER | Role.ITERATOR):
                return Value(Role.BATCH)
            return self._element(module, call.args[0], base)
        if isinstance(function, ast.Name | ast.Attribute):
            callee = self._evaluate(module, function, depth)
            if callee.role & Role.MODEL:
                return Value(Role.OUTPUT)
        if self._is_optimizer_class(module, call):
            return Value(Role.OPTIMIZER)
        if isinstance(function, ast.Name) and module.imports.get(name, "").endswith(".amp.GradScaler"):
            return Value(Role.SCALER)  # imported in a `try`, with a class of its own for an old torch
        return UNKNOWN

    def _imported(self, module: Module, call: ast.Call, dotted: str, depth: int) -> Value | None:
        if torch_api.is_wrapper(dotted):
            return self._evaluate(module, call.args[0], depth) if call.args else UNKNOWN
        role = _MADE.get(made_by(dotted)) or (Role.OPTIMIZER if self._is_optimizer_class(module, call) else None)
        if role is not None:
            return Value(role)
        if dotted == "torch.autograd.Variable" and call.args:
            return self._evaluate(module, call.args[0], depth)
        if torch_api.is_bar(dotted) and call.args:
            value = self._evaluate(module, call.args[0], depth)
            return value if value.role & (Role.LOADER | Role.ITERATOR) else None
        return None

    def _project_call(self, target: Definition, depth: int) -> Value:
        if isinstance(target.node, ast.ClassDef):
            bases = self.project.base_names(target)
            role = Role.NONE
            if self.project.is_torch_module(target):
                role = Role.CRITERION if target.node.name.endswith("Loss") else Role.MODEL
            elif any(b.startswith("torch.optim.lr_scheduler") for b in bases):
                role = Role.SCHEDULER
            elif any(b.startswith("torch.optim.") for b in bases):
                role = Role.OPTIMIZER
            elif any(b.endswith("DataLoader") for b in bases):
                role = Role.LOADER
            return Value(role, None, target.node, target.module)
        value = UNKNOWN
        for returned in target.returned:
            value = value.joined(self._evaluate(target.module, returned, depth + 1))
        # A device of its own, and batches that went through a function, are no longer what they were.
        return _without(value, Role.BATCH)

    def _find_target(self, module: Module, call: ast.Call) -> Definition | None:
        found = self._named_target(module, call)
        decorators = getattr(found.node, "decorator_list", []) if found is not None else []
        is_property = any(unparse(decorator).endswith("property") for decorator in decorators)
        return None if is_property else found  # `tools.save(net)`: what is called is what the property gives

    def _named_target(self, module: Module, call: ast.Call) -> Definition | None:
        found = self.project.definition(module, call.func)
        if found is not None:
            return found
        variable = module.variable(call.func)
        if variable in self.observed and self.observed[variable].function is not None:
            return self.observed[variable].function
        own = self_of(module, call.func)
        if own is not None:  # `self(x)`, of a layer
            layer = Definition(module, own.node)  # type: ignore[arg-type]
            return self.project.method(layer, "__call__") or self.project.method(layer, "forward")
        called = self._class_at(module, call.func)
        if called is not None:
            return self.project.method(called, "__call__")  # `stopper(loss, model)`
        if not isinstance(call.func, ast.Attribute):
            return None
        made = call.func.value
        owner = self._class_at(module, made)
        if isinstance(made, ast.Call):  # `Trainer(model).fit()`
            owner = self.made(module, made)
        return self.project.method(owner, call.func.attr) if owner is not None else None

    def _class_at(self, module: Module, node: ast.expr) -> Definition | None:
        """The project's class of an object: of a variable, or of what the class of its owner sets: `self.logger.stopper`."""
        found = self._class_of(module, module.variable(node))
        attribute = self.attribute(module, node) if found is None else None
        return found if attribute is None else self._class_of(attribute.scope.module, attribute)

    def attribute(self, module: Module, node: ast.expr) -> Variable | None:
        """What `net.model` is in the class of `net`: `self.model`."""
        owner = self._class_at(module, node.value) if isinstance(node, ast.Attribute) else None
        if owner is None or not isinstance(node, ast.Attribute):
            return None
        variable = Variable(owner.module.classes[owner.node], f"self.{node.attr}")
        return self.project.inherited(variable) or variable

    def _class_of(self, module: Module, variable: Variable | None) -> Definition | None:
        """The project's class that a variable holds an object of."""
        for binding in module.bindings(variable):
            if isinstance(binding.whole, ast.Call):
                made = itself(binding.whole)  # `Diffuser(steps).to(device)`
                owner = self.project.definition(module, made.func) if isinstance(made, ast.Call) else None
                if owner is not None and isinstance(owner.node, ast.ClassDef):
                    if made is binding.whole or self._gives_itself(owner, binding.whole):
                        return owner
        value = self.known.get(variable, UNKNOWN) if variable is not None and self._settled else UNKNOWN
        if value.owner is not None and value.module is not None:
            return Definition(value.module, value.owner)
        return None

    def _gives_itself(self, owner: Definition, call: ast.Call) -> bool:
        """Whether a method that a class has of its own returns the object, as that of a module does."""
        method = self.project.method(owner, call.func.attr) if isinstance(call.func, ast.Attribute) else None
        if method is None:
            return bool(self.project.base_names(owner))
        return bool(method.returned) and all(isinstance(v, ast.Name) and v.id == "self" for v in method.returned)

    def _is_optimizer_class(self, module: Module, call: ast.Call) -> bool:
        dotted = module.full_name(call.func)
        last = _name_of(call.func)
        if made_by(dotted) == "optimizer":
            return True
        if OPTIMIZER_NAME.search(last):
            text = arguments_at(call, 0, "params")
            return bool(text) and "param" in unparse(text[0])
        return False


def is_wrapper(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a model of the model that it is handed, with the same parameters or a copy of them."""
    return torch_api.is_wrapper(module.full_name(call.func))


def is_transparent(module: Module, call: ast.Call) -> bool:
    """Whether a call hands on what its first argument yields, as a progress bar does, under whatever name."""
    return torch_api.is_bar(module.qualified(call.func) or _name_of(call.func))


def arguments_of(call: ast.Call, target: Definition) -> list[tuple[str, ast.expr]]:
    """Which parameter of a project's function each argument of a call becomes."""
    node = target.node
    assert not isinstance(node, ast.ClassDef)
    names = positional_of(target)
    pairs: list[tuple[str, ast.expr]] = []
    for name, argument in zip(names, call.args):
        if isinstance(argument, ast.Starred):
            break
        pairs.append((name, argument))
    known = {*names, *[a.arg for a in node.args.kwonlyargs]}
    pairs += [(k.arg, k.value) for k in call.keywords if k.arg in known and k.arg is not None]
    return pairs


def given_by(sites: Sites, parameter: Variable) -> list[tuple[Module, ast.Call, ast.expr | None]]:
    """Every call of the function of a parameter, with what it hands over for it: None where it leaves it out."""
    function = parameter.scope.node
    if not isinstance(function, Function):
        return []
    target = Definition(parameter.scope.module, function)
    return [(m, call, dict(arguments_of(call, target)).get(parameter.name)) for m, call in sites.get(function, ())]


@once
def positional_of(target: Definition) -> list[str]:
    """The parameters that a call fills in turn; methods have bound their first."""
    node = target.node
    assert not isinstance(node, ast.ClassDef)
    names = [a.arg for a in positional_parameters(node)]
    decorators = [unparse(d) for d in node.decorator_list]
    is_method = target.scope.parent is not None and target.scope.parent.is_class and "staticmethod" not in decorators
    return names[1:] if is_method else names


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _flat(value: Value, depth: int) -> Value:
    """The value without parts of parts below a depth: `pair = (pair, pair)` would grow for ever."""
    if value.items is None:
        return value
    items = tuple(_flat(item, depth - 1) for item in value.items) if depth else None
    return Value(value.role, items, value.owner, value.module)


def _without(value: Value, role: Role) -> Value:
    items = tuple(_without(item, role) for item in value.items) if value.items is not None else None
    return Value(value.role & ~role, items, value.owner, value.module)
