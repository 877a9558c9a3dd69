"""What is this process's own: values that are computed from its shard of the batches, and differ between processes.

A loss, a count, a running sum and all that is made of them. Weights are not: every step averages their gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accel_migrate.analysis.values.loops import Backward, CallGraph, LoaderLoop, numbers_batches, of_this_round
from accel_migrate.analysis.values.roles import Role, arguments_of
from accel_migrate.flow.nodes import all_arguments, children, is_call_of, is_text, operands, picked, walk
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Binding, Function, Module, Scope, Variable
from accel_migrate.flow.sequence import may_follow
from accel_migrate.flow.torch_api import is_computed_for_all

# Objects that are alike on all processes, whatever they were given.
_ALIKE = Role.MODEL | Role.OPTIMIZER | Role.SCHEDULER | Role.LOADER | Role.LOADERS | Role.DEVICE | Role.SCALER
_COLLECTIVES = ("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "reduce")
_ALIKE_METHODS = {"size", "numel", "dim", "ndimension"}  # every process gets batches of the same size
_SHOWS = {"set_description", "set_description_str", "set_postfix", "set_postfix_str"}
_KEEPS = {"json.dump", "json.dumps", "pickle.dump", "torch.save"}  # they leave a dictionary as it is
_DEEPEST = 40


class Locality:
    """Follows a value back to the batches of a shared loader, or to a loss that is trained on."""

    def __init__(
        self,
        graph: CallGraph,
        loops: Iterable[LoaderLoop],
        backwards: Iterable[Backward],
        whole: Iterable[ast.Call] = (),
    ) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.loops = {loop.statement: loop for loop in loops}
        self.whole = frozenset(whole)  # calls that evaluate all of the data in a loop that trains elsewhere
        self._given: list[Function] = []  # whose parameters were looked at where they are called
        self.agreed: set[ast.AST] = set()  # bindings, and reads, of what is averaged over processes
        self._known: dict[ast.expr, bool] = {}
        self._reduced: dict[Module, set[Variable | None]] = {}
        self._busy: set[object] = set()
        self._asked: set[object] = set()  # on the way to one answer, each with the calls that it was reached by
        made = self._bound_by((backward.module, backward.loss) for backward in backwards)
        self.losses = {binding.statement for binding in made}
        self.loss_names = {binding.target for binding in made}
        self._collective: dict[Function, bool] = {}
        self._changed: dict[Module, dict[Variable | None, list[tuple[ast.expr, ast.expr]]]] = {}
        self._objects: list[Scope] = []  # classes whose attributes are asked of one object, all uses of which are known
        self._uses: dict[Variable, list[ast.expr] | None] = {}
        self._keyed: dict[Variable, bool] = {}
        self._fed: dict[Module, dict[Variable, list[tuple[ast.expr, ast.expr]]]] = {}

    def _bound_by(self, losses: Iterable[tuple[Module, ast.expr]]) -> list[Binding]:
        """The bindings that make a loss, also where a function is handed it."""
        waiting: list[tuple[Module, ast.expr]] = list(losses)
        found: list[Binding] = []
        for module, loss in waiting:
            variable = module.variable(loss)
            for binding in of_this_round(module, loss):
                if binding.kind != "parameter":
                    found.append(binding)
                else:
                    waiting += [given for given in self.graph.handed(variable) if given not in waiting]
        return found

    def is_local(self, module: Module, node: ast.expr) -> bool:
        """Whether the value of an expression may differ between processes."""
        known = self._known.get(node)
        if known is not None and not (known and module.scope(node).function in self._given):
            return known  # where parameters stand for one call, what other calls hand over is no answer
        outermost = not self._busy
        if outermost:
            self._asked.clear()
        here = (node, tuple(self._given), tuple(self._objects))
        if here in self._asked or len(self._busy) > _DEEPEST:
            return False  # it leads to nothing, or back to where this question came from
        self._asked.add(here)
        self._busy.add(node)
        try:
            found = self._is_local(module, node)
        finally:
            self._busy.discard(node)
        if outermost or (found and not self._given):  # within a circle, no is an answer to the outermost question alone
            self._known[node] = found
        return found

    def agree(self, nodes: Iterable[ast.AST]) -> None:
        """These bindings or reads are averaged over processes from now on."""
        self.agreed.update(nodes)
        self._known.clear()

    def _is_local(self, module: Module, node: ast.expr) -> bool:
        if node in self.agreed:
            return False
        if isinstance(node, ast.Name):
            variable = module.variable(node)
            return variable is not None and not module.is_import(variable) and self._variable(module, node, variable)
        if isinstance(node, ast.Attribute):
            if node.attr == "shape":
                return False
            variable = module.variable(node)
            if variable is not None and module.bindings(variable):
                return self._variable(module, node, variable)
            return self.is_local(module, node.value)
        if isinstance(node, ast.Call):
            return self._call(module, node)
        if isinstance(node, ast.Lambda | ast.Constant):
            return False
        if isinstance(node, ast.Subscript):
            if self.is_local(module, node.value):
                return True
        return any(self.is_local(module, child) for child in operands(node))

    def _call(self, module: Module, node: ast.Call, path: tuple[int, ...] = ()) -> bool:
        """With a path, whether that part of the tuple is which the call returns."""
        if is_call_of(node, "len", "isinstance", "range", "print", "type"):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in _ALIKE_METHODS:
            return False
        if module.parents[node] in self.losses:
            return True
        if self.agrees(module, node):
            return False
        if self.roles.role(module, node.func) & Role.LOADER:
            return False
        if node in self.whole:
            return False
        given = all_arguments(node)
        target = self.roles.function(module, node)
        if target is not None:
            uses = self._all_uses(module, node.func.value) if isinstance(node.func, ast.Attribute) else None
            if self._returns(target.module, target.node, of_one=uses is not None, path=path):
                return True
            given += uses or ()
        if isinstance(node.func, ast.Attribute):
            given.append(node.func.value)
        elif isinstance(node.func, ast.Call):
            given.append(node.func)
        return any(self.is_local(module, part) for part in given)

    def agrees(self, module: Module, call: ast.Call) -> bool:
        """Whether a call brings the processes together by itself, so that what it returns is the same on all."""
        if _is_collective(module, call) or is_computed_for_all(module, call):
            return True
        target = self.roles.function(module, call)
        if target is None:
            return False
        if target.node not in self._collective:
            functions = {target.node, *self.graph.reached_from(target.node, target.module)}
            self._collective[target.node] = any(
                _is_collective(owner, node)
                for owner in self.roles.project.modules
                for function in functions & owner.functions.keys()
                for node in owner.walk(function)
            )
        return self._collective[target.node]

    def _all_uses(self, module: Module, receiver: ast.expr) -> list[ast.expr] | None:
        """All that an object is given and may keep, if it is built here and only its methods and attributes are asked for."""
        variable = module.variable(receiver) if isinstance(receiver, ast.Name) else None
        if variable is None:
            return None
        if variable not in self._uses:
            self._uses[variable] = self._found_uses(module, variable)
        return self._uses[variable]

    def _found_uses(self, module: Module, variable: Variable) -> list[ast.expr] | None:
        classes: list[ast.ClassDef] = []
        for binding in module.bindings(variable):
            built = self.roles.made(module, binding.assigned)
            if built is None:
                return None
            classes.append(built.node)
        given: list[ast.expr] = []
        for name in module.walk(module.tree, ast.Name):
            if name.id != variable.name or isinstance(name.ctx, ast.Store) or module.variable(name) != variable:
                continue
            asked = module.parents[name]
            if not isinstance(asked, ast.Attribute) or not isinstance(asked.ctx, ast.Load):
                return None
            call = module.parents[asked]
            if isinstance(call, ast.Call) and call.func is asked:
                given += all_arguments(call)
            elif isinstance(call, ast.Attribute | ast.Subscript):
                return None  # a part of it is changed, or handed on
        return [] if all(map(_keeps_nothing, classes)) else given

    def _returns(self, module: Module, function: Function, of_one: bool = False, path: tuple[int, ...] = ()) -> bool:
        if function in self._busy:
            return False
        self._busy.add(function)
        self._given.append(function)
        owner = module.functions[function].owner_class if of_one else None
        if owner is not None:
            self._objects.append(owner)
        try:
            return any(self.is_local(module, picked(value, path)) for value in module.returned(function))
        finally:
            if owner is not None:
                self._objects.pop()
            self._given.pop()
            self._busy.discard(function)

    def _variable(self, module: Module, node: ast.expr, variable: Variable, key: object = None) -> bool:
        """With a key, whether that entry of the mapping is."""
        if self.roles.of(variable) & _ALIKE or self._is_agreed(module, variable) or variable.scope in self._objects:
            return False
        key = (key if key is not None else _key(module, node)) if self._is_asked_by_key(module, variable) else None
        bindings = self._since_agreed(module, node)
        if any(self._binding(module, variable, binding, key) for binding in bindings):
            return True
        held = {binding.statement for binding in bindings}
        fed = [*self.feeds(module).get(variable, ()), *self._changed_by_calls(module).get(variable, ())]
        for receiver, given in fed:
            if key is not None and _key(module, receiver) not in (None, key):
                continue  # another entry
            same = "." in variable.name or held.intersection(b.statement for b in reaching(module, receiver))
            if same and not self._is_set_later(module, node, receiver, bindings) and self.is_local(module, given):
                return True
        return False

    def _is_set_later(self, module: Module, node: ast.expr, receiver: ast.expr, bindings: list[Binding]) -> bool:
        """Whether an entry is read above all that sets one: `best = scores["loss"]`, and in the loop `scores["loss"] = loss`.

        What a method changes may be what was read, under another name; and a function may find the object of an earlier call.
        """
        read, entry = module.parents[node], module.parents[receiver]
        if not isinstance(read, ast.Subscript) or not isinstance(read.ctx, ast.Load) or read.value is not node:
            return False
        frame, statement = module.scope(node).frame, module.parents[entry]
        if not isinstance(statement, ast.Assign) or entry not in statement.targets:
            return False
        anew = all(
            isinstance(b.value, ast.Dict) or (isinstance(b.value, ast.Call) and not self.roles.target(module, b.value))
            for b in bindings
        )
        if module.scope(receiver).frame is not frame or not (frame.parent is None or anew):
            return False
        return not may_follow(module, statement, node)

    def _since_agreed(self, module: Module, node: ast.expr) -> list[Binding]:
        """The bindings that a name may hold; of a sum that is averaged on the way here, those from there on."""
        found = reaching(module, node)
        for index, binding in enumerate(found if self.agreed else ()):
            if binding.kind == "augment" and binding.target in self.agreed:
                block = module.block(binding.statement)
                later = block[block.index(binding.statement) + 1 :]
                if any(module.holds(statement, node) for statement in later):
                    return found[: index + 1]
        return found

    def _is_agreed(self, module: Module, variable: Variable) -> bool:
        """`dist.all_reduce(total)`: from there on it is the same on all."""
        if module not in self._reduced:
            calls = [call for call in module.calls if _is_collective(module, call)]
            self._reduced[module] = {module.variable(part) for call in calls for part in call.args}
        return variable in self._reduced[module]

    def _binding(self, module: Module, variable: Variable, binding: Binding, key: object) -> bool:
        if binding.target in self.agreed:
            return False
        if binding.statement in self.losses and binding.kind == "assign":
            return True
        if binding.kind == "for":
            loop = self.loops.get(binding.statement)  # type: ignore[call-overload]
            if loop is None:
                return binding.value is not None and self.is_local(module, binding.value)
            return not numbers_batches(loop.statement.iter, binding.path)
        if binding.kind == "augment":
            assert isinstance(binding.statement, ast.AugAssign)
            return self.is_local(module, binding.statement.value)
        if binding.kind == "parameter":
            return self._handed(variable, key)
        if key is not None and (back := self._handed_back(module, binding)) is not None:
            return self._variable(module, back, variable, key)
        if isinstance(binding.value, ast.Call):
            return (
                self._call(module, binding.value, binding.path)
                if binding.path
                else self.is_local(module, binding.value)
            )
        return binding.value is not None and self.is_local(module, binding.value)

    def _is_asked_by_key(self, module: Module, variable: Variable) -> bool:
        """Whether a mapping is read and set entry by entry, and handed to no more than functions of the project."""
        if variable not in self._keyed:
            names = [n for n in module.walk(module.tree, ast.Name) if n.id == variable.name]
            own = [n for n in names if isinstance(n.ctx, ast.Load) and module.variable(n) == variable]
            self._keyed[variable] = "." not in variable.name and all(self._goes_by_key(module, name) for name in own)
        return self._keyed[variable]

    def _goes_by_key(self, module: Module, name: ast.Name) -> bool:
        entry = module.parents[name]
        if _key(module, name) is not None:
            above = module.parents[entry]
            return isinstance(entry.ctx, ast.Load) or (isinstance(above, ast.Assign | ast.AugAssign))  # type: ignore[attr-defined]
        call = module.parents[entry] if isinstance(entry, ast.keyword) else entry
        if not isinstance(call, ast.Call) or call.func is name:
            return isinstance(entry, ast.Return)
        return module.qualified(call.func) in _KEEPS or self.roles.function(module, call) is not None

    def _handed_back(self, module: Module, binding: Binding) -> ast.Name | None:
        """`state` of `state = update(model, state)`, where the function gives back what it got, with nothing of its own."""
        call = binding.value
        target = self.roles.function(module, call) if not binding.path else None
        if target is None:
            return None
        given = {name: value for name, value in arguments_of(call, target) if isinstance(value, ast.Name)}  # type: ignore[arg-type]
        returned = {value.id if isinstance(value, ast.Name) else "" for value in target.module.returned(target.node)}
        back = given.get(returned.pop()) if len(returned) == 1 else None
        same = back is not None and module.variable(back) == module.variable(binding.target)
        return back if same and not self._returns(target.module, target.node) else None

    def _handed(self, variable: Variable, key: object) -> bool:
        asked = (variable, key)
        if variable.scope.node in self._given or asked in self._busy:
            return False
        self._busy.add(asked)
        found = any(
            self.is_local(caller, argument)
            if key is None or not isinstance(argument, ast.Name) or (named := caller.variable(argument)) is None
            else self._variable(caller, argument, named, key)
            for caller, argument in self.graph.handed(variable)
        )
        self._busy.discard(asked)
        return found

    def feeds(self, module: Module) -> dict[Variable, list[tuple[ast.expr, ast.expr]]]:
        """What objects are given by calls of their methods, by calls of themselves, or entry by entry."""
        if module not in self._fed:
            found: dict[Variable, list[tuple[ast.expr, ast.expr]]] = {}
            for node in module.walk(module.tree, ast.Expr, ast.Assign, ast.AugAssign):
                owner, given = _fed_by(module, node)
                variable = module.variable(owner) if owner is not None else None
                if variable is not None and owner is not None:
                    found.setdefault(variable, []).extend((owner, part) for part in given)
            self._fed[module] = found
        return self._fed[module]

    def _changed_by_calls(self, module: Module) -> dict[Variable | None, list[tuple[ast.expr, ast.expr]]]:
        """What functions of the project change, with what they get: what they keep of that is not known."""
        if module not in self._changed:
            found: dict[Variable | None, list[tuple[ast.expr, ast.expr]]] = {}
            for call in module.calls:
                for receiver, given in self._fed_through(module, call):
                    found.setdefault(module.variable(receiver), []).extend((receiver, part) for part in given)
            self._changed[module] = found
        return self._changed[module]

    def _fed_through(self, module: Module, call: ast.Call) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
        """`add_losses(output, labels, metrics)`: what a function changes is given all else that it gets or makes."""
        target = self.roles.function(module, call)
        if target is None or call in self.whole:
            return
        handed = arguments_of(call, target)
        for name, argument in handed:
            if isinstance(argument, ast.Name | ast.Attribute) and module.variable(argument) is not None:
                if Variable(target.scope, name) in self.feeds(target.module):
                    # A writer, or another mapping, that was given figures before does not hand them on.
                    given = [other for _, other in handed if module.variable(other) not in self.feeds(module)]
                    yield argument, [*given, *([call] if module.parents[call] in self.losses else [])]

    def given_to(self, module: Module, owner: ast.AST) -> list[ast.expr]:
        """What an object was given of this process's own: `losses.append(loss.item())`."""
        variable = module.variable(owner)
        given = self.feeds(module).get(variable, []) if variable is not None else []
        return [part for _, part in given if self.is_local(module, part)]


def _key(module: Module, node: ast.expr) -> object:
    """`"loss"` of `scores["loss"]`, of what is asked for it; None of any other."""
    entry = module.parents[node]
    keyed = isinstance(entry, ast.Subscript) and entry.value is node and isinstance(entry.slice, ast.Constant)
    return entry.slice.value if keyed else None  # type: ignore[attr-defined]


def _fed_by(module: Module, node: ast.AST) -> tuple[ast.expr | None, list[ast.expr]]:
    """The object that a statement changes without binding it, with what it is given."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SHOWS:
            return None, []  # a bar shows a figure, and what it counts is as it was
        owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if module.qualified(call.func) is None:
            return _root(owner), all_arguments(call)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        return _root(node.target), [node.value]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return _root(node.targets[0]), [node.value]
    return None, []


def _keeps_nothing(owner: ast.ClassDef) -> bool:
    """Whether a class has functions alone, which only call each other by `self`: what one is given no other knows."""
    methods = [each for each in owner.body if isinstance(each, ast.FunctionDef)]
    names = {method.name for method in methods}
    rest = [each for each in owner.body if each not in methods and not isinstance(each, ast.Pass)]
    derived = any(getattr(base, "id", "") != "object" for base in owner.bases)
    if derived or owner.decorator_list or not all(is_text(each) for each in rest):
        return False
    for method in methods:
        parents = {child: node for node in walk(method) for child in children(node)}
        own = method.args.args[0].arg if method.args.args else ""
        if method.decorator_list or any(isinstance(node, ast.Global | ast.Nonlocal) for node in parents):
            return False
        defaults = [*method.args.defaults, *method.args.kw_defaults]
        if not all(isinstance(default, ast.Constant | None) for default in defaults):
            return False
        for node in parents:
            asked = parents[node]
            if isinstance(node, ast.Name) and node.id == own:
                call = parents.get(asked)
                if not (isinstance(asked, ast.Attribute) and asked.attr in names and isinstance(call, ast.Call)):
                    return False
                if call.func is not asked:
                    return False
    return True


def _root(node: ast.expr) -> ast.expr | None:
    """The name or attribute that entries and calls are asked of: `history` of `history["loss"].append`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name | ast.Attribute) else None


def _is_collective(module: Module, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    owner, _, name = module.full_name(node.func).rpartition(".")
    return owner == "torch.distributed" and name in _COLLECTIVES
