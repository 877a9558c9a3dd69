"""AM970: weights of a prepared model are taken and stored by the Accelerator, in every file; a wrapper is asked for nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from accel_migrate.check.collective_under_rank import Guards
from accel_migrate.check.condition import Condition, Project, Violation
from accel_migrate.check.evidence import Side, argument_of, is_accelerator, parameter_names
from accel_migrate.check.stores import Stores, returned
from accel_migrate.flow.calls import Made
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.program import Function
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.torch_api import ITSELF

# What every module has, a wrapper too, and answers with names: those of a wrapper begin with `module.`.
_NAMED = frozenset(
    [
        *("state_dict", "load_state_dict", "named_parameters", "named_modules", "named_children", "named_buffers"),
        *("children", "_modules", "get_submodule", "get_parameter"),
    ]
)
_WRITES = frozenset(["torch.save", "pickle.dump", "joblib.dump"])
_WHOLE = _WRITES | {"pickle.dumps", "copy.deepcopy", "torch.jit.script"}
_READS = frozenset(["torch.load", "pickle.load", "joblib.load"])
_RUN = frozenset(["train", "eval", "parameters", "forward"])
_DEPTH = 12


def find(project: Project) -> Iterator[Violation]:
    side = project.evidence.after
    models = _Models(side)
    fault = "would meet the wrapper that `{}` is on several processes"
    if not side.wraps_models:
        fault = "would take the weights of `{}` past the Accelerator, on every process, and of sharded ones a part"
    for file, asked, model in (_questions(side) if side.wraps_models else _taken(side)) if models.made else ():
        if models.may_be(file, model) and side.after_prepare(file, model):
            message = f"`{unparse(asked)[:60]}` in {file.path.name} {fault.format(unparse(model))}"
            yield Violation("AM970", file.path, asked.lineno, message)


def _taken(side: Side) -> Iterator[tuple[Module, ast.expr, ast.expr]]:
    """What takes the weights of a model that no wrapper hides, or writes it whole on more than one process."""
    guards = side.once(Guards)
    for file, asked, model in _questions(side):
        if isinstance(asked, ast.Attribute):
            if asked.attr == "state_dict":
                yield file, asked, model
        elif isinstance(asked, ast.Call) and file.qualified(asked.func) in _WRITES and guards.of(file, asked) is None:
            yield file, asked, model


def _questions(side: Side) -> Iterator[tuple[Module, ast.expr, ast.expr]]:
    """What is asked by name or stored, with the value that must be the model itself."""
    for file in side.files:
        for node in file.walk(file.tree, ast.Attribute):
            if node.attr in _NAMED and isinstance(node.ctx, ast.Load):
                yield file, node, node.value
    for file, call in side.calls:
        saves = isinstance(call.func, ast.Attribute) and call.func.attr == "save" and is_accelerator(call.func.value)
        if call.args and (saves or file.qualified(call.func) in _WHOLE):
            stored = call.args[0]
            for value in stored.values if isinstance(stored, ast.Dict) else [stored]:
                yield file, call, value


class _Models:
    """Which expressions may be a prepared model, wrapper and all."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._stores = side.once(Stores)
        self._keeping: dict[str, set[ast.AST]] = {}
        if self.made:
            self._find_keeping()

    @cached_property
    def made(self) -> set[Made]:
        """What prepare() returns, as far as the program runs it as a model."""
        found = set[Made]().union(*self._side.runs_prepared.values())
        steps: set[Made] = set()
        for file, call in self._side.calls:
            function = call.func
            if isinstance(function, ast.Attribute) and function.attr in _RUN:
                found |= self._side.flows.made(file, function.value, "prepared")
            elif isinstance(function, ast.Attribute) and function.attr == "step":
                steps |= self._side.flows.made(file, function.value, "prepared")
        return {made for made in found - steps if self._is_given(made)}

    def _is_given(self, made: Made) -> bool:
        """Whether it is known which argument it was, and that is not a loader."""
        assert isinstance(made.node, ast.Call)
        if made.index >= len(made.node.args) or any(isinstance(each, ast.Starred) for each in made.node.args):
            return False
        file = next(file for file, call in self._side.asked("prepare") if call is made.node)
        return not self._side.flows.made(file, made.node.args[made.index], "loader")

    def may_be(self, file: Module, node: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> bool:
        if node in seen or len(seen) > _DEPTH:
            return False
        seen |= {node}
        match node:
            case ast.Name():
                return self._name(file, node, seen)
            case ast.Attribute():
                return self._field(file, node.value, node.attr, node)
            case ast.IfExp():
                return any(self.may_be(file, part, seen) for part in (node.body, node.orelse))
            case ast.BoolOp():
                return any(self.may_be(file, part, seen) for part in node.values)
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]):
                return self._field(file, owner, name, None)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in ITSELF:
                return self.may_be(file, owner, seen)
            case ast.Call():
                callees = [f for f in self._side.flows.callees.get(node, ()) if getattr(f, "name", "") != "__init__"]
                homes = self._side.flows.function_file
                return any(self.may_be(homes[f], result, seen) for f in callees for result in returned(f))
            case ast.Subscript():
                prepared = self._side.flows.made(file, node, "prepared") & self.made
                return bool(prepared) and not self._is_read(file, node.value)
        return False

    def _is_read(self, file: Module, node: ast.expr) -> bool:
        """`torch.load(path)`: what a file holds under a key is no model of this run, whatever was stored under it."""
        stores = self._stores.reaching(file, node) if isinstance(node, ast.Name) else []
        values = [store.value for store in stores] or [node]
        return all(isinstance(each, ast.Call) and file.qualified(each.func) in _READS for each in values)

    def _name(self, file: Module, name: ast.Name, seen: frozenset[ast.AST]) -> bool:
        there = self._side.program.imported(file, name.id) if file.qualified(name) is not None else None
        if there is not None and there[1] is not None:
            stores = self._stores.of(("name", there[0].root, there[1]))
        else:
            stores = self._stores.reaching(file, name)
        for store in stores:
            if store.value is not None and not store.at and not store.anywhere:
                if self._is_prepare(store.value, store.of) or (
                    not store.of and self.may_be(store.file, store.value, seen)
                ):
                    return True
        scope = file.binder(name.id, file.scope(name))
        function = scope.node if scope is not None else None
        if not isinstance(function, Function) or name.id not in parameter_names(function):
            return False
        if any(not store.at and not store.anywhere for store in stores):
            return False  # set anew before it is read
        given = [(site.file, self._given(file, function, site.call, name.id)) for site in self._side.above(function)]
        if not given and self._is_handed_on(function):
            return self._meets_the_unknown
        if any(isinstance(each, ast.Starred) for site in self._side.above(function) for each in site.call.args):
            return bool(self._side.flows.made(file, name, "prepared") & self.made)
        return any(
            argument is not None and self._side.after_prepare(at, argument) and self.may_be(at, argument, seen)
            for at, argument in given
        )

    def _given(self, file: Module, function: Function, call: ast.Call, name: str) -> ast.expr | None:
        """What a call gives for a parameter; for `self` the object that it asks, which is no wrapper."""
        method = not self._side.wraps_models and isinstance(file.parents.get(function), ast.ClassDef)
        if method and isinstance(call.func, ast.Attribute) and parameter_names(function)[:1] == [name]:
            return call.func.value
        return argument_of(function, call, name)

    def _is_handed_on(self, function: Function) -> bool:
        """Whether a function is a value that goes its own ways: a lambda, one that is decorated, or named without a call."""
        if isinstance(function, ast.Lambda) or function.decorator_list:
            return True
        return function.name in self._values

    @cached_property
    def _values(self) -> set[str]:
        """The functions that are named and not called, also as the text of a getattr()."""
        found: set[str] = set()
        for file in self._side.files:
            for node in file.walk(file.tree, ast.Name, ast.Attribute):
                above = file.parents.get(node)
                if not (isinstance(above, ast.Call) and above.func is node):
                    found.add(node.id if isinstance(node, ast.Name) else getattr(node, "attr", ""))
        asked = [call.args[1] for _, call in self._side.calls if unparse(call.func) == "getattr" and len(call.args) > 1]
        return found | {str(name.value) for name in asked if isinstance(name, ast.Constant)}

    @cached_property
    def _meets_the_unknown(self) -> bool:
        """Whether a prepared model is given to a call that no function of the program, and no library, is seen to answer."""
        flows = self._side.flows
        for file, call in self._side.calls:
            known = flows.callees.get(call) or file.qualified(call.func) or flows.made(file, call.func, "prepared")
            if known or (isinstance(call.func, ast.Name) and file.binder(call.func.id, file.scope(call)) is None):
                continue
            if isinstance(call.func, ast.Attribute) and is_accelerator(call.func.value):
                continue
            given = [*call.args, *[keyword.value for keyword in call.keywords]]
            values = [each.value if isinstance(each, ast.Starred) else each for each in given]
            if any(flows.made(file, each, "prepared") & self.made for each in values):
                return True
        return False

    def _is_prepare(self, value: ast.expr, of: tuple[object, ...]) -> bool:
        index = of[0][1] if of and isinstance(of[0], tuple) else 0
        return any(made.node is value and made.index == index for made in self.made)

    def _field(self, file: Module, owner: ast.expr, name: str, node: ast.Attribute | None) -> bool:
        """`owner.name`: whether a class that the owner may be of keeps a prepared model under the name."""
        if node is not None and file.qualified(node) is not None:
            return bool(self._side.flows.made(file, node, "prepared") & self.made)
        if is_accelerator(owner):
            return False
        keeping = self._keeping.get(name, set())
        known = {made.node for made in self._side.flows.made(file, owner, "instance")}
        return bool(keeping) and (not known or any(self._related(a, b) for a in known for b in keeping))

    def _find_keeping(self) -> None:
        """The classes that keep a prepared model, by the name of the field: what prepare() returns, or a variable with that."""
        set_to: list[tuple[Module, str, ast.AST, ast.Name]] = []
        for file in self._side.files:
            for node in file.walk(file.tree, ast.Assign):
                for target in node.targets if isinstance(node, ast.Assign) else ():
                    for index, part in enumerate(target.elts if isinstance(target, ast.Tuple | ast.List) else [target]):
                        owner = self_of(file, part.value) if isinstance(part, ast.Attribute) else None
                        if owner is None or not isinstance(part, ast.Attribute) or not isinstance(node, ast.Assign):
                            continue
                        if self._is_prepare(node.value, (("item", index),)):
                            self._keeping.setdefault(part.attr, set()).add(owner.node)
                        elif target is part and isinstance(node.value, ast.Name):
                            set_to.append((file, part.attr, owner.node, node.value))
        found = -1
        while found < len(self._keeping):
            found = len(self._keeping)
            for file, name, keeper, value in set_to:
                known = keeper in self._keeping.get(name, ())
                if not known and self._side.after_prepare(file, value) and self.may_be(file, value):
                    self._keeping.setdefault(name, set()).add(keeper)

    def _related(self, one: ast.AST, other: ast.AST) -> bool:
        return other in self._bases(one) or one in self._bases(other)

    def _bases(self, owner: ast.AST) -> set[ast.AST]:
        found = {owner}
        waiting = [owner]
        while waiting:
            node = waiting.pop()
            file = next((f for f in self._side.files if node in f.scopes), None)
            if file is None or not isinstance(node, ast.ClassDef):
                continue
            for base in node.bases:
                more = {made.node for made in self._side.flows.made(file, base, "class")} - found
                found |= more
                waiting += more
        return found


CONDITION = Condition(
    code="AM970",
    name="wrapper_asked",
    summary="weights of a prepared model would be taken or stored past the Accelerator",
    why="Every process would write the file, and of sharded weights (FSDP, ZeRO-3) each has only a part: `get_state_dict()` and "
    "`save()` know both. Code that reaches a prepared model from another file, through an object that keeps it, a function "
    "that returns it or an import, must use them, or the loop is left. With `--target accelerate` prepare() returns a wrapper "
    "on several processes, which answers `state_dict()` with keys that begin with `module.` and takes no others back: it must "
    "not be asked for names at all.",
    example_before="trainer = Trainer()\ntrainer.fit()\ntorch.save(trainer.model.state_dict(), path)",
    example_after="trainer = Trainer()\ntrainer.fit()\n"
    "torch.save(trainer.accelerator.get_state_dict(trainer.model), path)",
    find=find,
)
