"""AM956: what the script put on one device is still on one device: the Accelerator takes over all moves to it, or none."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Container, Iterator
from functools import cached_property

from accel_migrate.check.condition import Condition, at_places
from accel_migrate.check.evidence import Evidence, Found, Side, argument_of, is_accelerator, step_of
from accel_migrate.check.stores import Stores
from accel_migrate.flow.calls import Site
from accel_migrate.flow.nodes import called_name, unparse, walk
from accel_migrate.flow.program import Function, default_of
from accel_migrate.flow.scopes import Module, Scope

_DEPTH = 100
_KINDS = frozenset({"cpu", "cuda", "mps", "xpu"})  # without a number: what of it a process has
_OF_ALL = frozenset(
    ["train", "eval", "forward", "parameters", "state_dict", "load_state_dict", "zero_grad", "step", "to"]
)
_SETTING = re.compile(r"arg|conf|cfg|opt|param|set", re.I)
_SETTINGS = frozenset({"SimpleNamespace", "Namespace", "dict", "EasyDict", "set_defaults", "update", "setdefault"})


def _found(evidence: Evidence) -> Found:
    """Moves to a device of the script's own choice beside a model that is on the Accelerator's."""
    side = evidence.after
    if not side.created:
        return
    devices = side.once(Devices)
    given = [k.value for _, call in side.created for k in call.keywords if k.arg in ("cpu", "device")]
    told = {unparse(node) for value in given for node in walk(value) if isinstance(node, ast.expr)}
    named = [devices.of(file, k.value) for file, call in side.created for k in call.keywords if k.arg == "device"]
    named = [found for found in named if found <= _KINDS]
    options = {f"the option --{name}" for value in given for name in devices.set_from_accelerator(value)}
    for file, node, device, found in devices.moves():
        if not side.runs(file, node):
            continue
        own = found - {"accelerator"} - options
        if not own or own in ({"cpu"}, {"cuda"}) or (device is not None and unparse(device) in told):
            continue  # plain "cuda" is the Accelerator's GPU; the CPU was asked for by name
        if not _chosen_alike(told, own) and own not in named:
            listed = " or ".join(sorted(own))
            yield (
                file,
                node,
                f"`{unparse(node)[:60]}` would go to {listed}, and the model to the Accelerator's device",
            )
    yield from _fed_from_the_cpu(side, devices)
    yield from _loaded_where_it_was(side)
    yield from _moves_itself(side, devices, told)
    handed = {unparse(value) for value in given if isinstance(value, ast.Name | ast.Attribute)}
    first = {m for _, m, device, found in devices.moves() if "cuda" in found or (device and unparse(device) in handed)}
    kept = {move for file, move, _, _ in devices.moves() if move in first and not _is_prepared(side, file, move)}
    for file, call in side.created:
        yield from _moved_before(side, file, call, first)
        way = _on_the_way(side, file, call)
        for site in way:
            # What runs before the Accelerator is made inside of another call on the way is looked at there.
            yield from _moved_before(side, site.file, site.call, kept, {other.call for other in way})


def _on_the_way(side: Side, file: Module, call: ast.Call) -> list[Site]:
    """The calls of functions that lead to one, each in its file: `Trainer(model)`, where the trainer makes the Accelerator."""
    waiting = [Site(file, call)]
    for at, node in waiting:
        function = at.scope(node).frame.node
        above = side.above(function) if isinstance(function, Function) else []
        waiting += [site for site in above if site not in waiting]
    return waiting[1:]


def _is_prepared(side: Side, file: Module, move: ast.Call) -> bool:
    """Whether what is moved is handed to prepare() later on, which takes it to the right GPU."""
    reached = side.flows.reached([side.flows.place(file, move)], computed=False)
    return any(side.flows.place(at, each) in reached for at, call in side.asked("prepare") for each in call.args)


def _moved_before(
    side: Side, file: Module, call: ast.Call, first: set[ast.Call], but: Container[ast.Call] = ()
) -> Found:
    """Moves to "the" GPU that run before the Accelerator gives each process its own."""
    scope = file.scope(call).frame
    graph = side.graph(scope)
    made = step_of(file, call, graph)
    for other, node in side.calls:
        if other is not file or file.scope(node).frame is not scope or made is None or node in but:
            continue
        step = step_of(file, node, graph)
        if step is None or step is made or graph.dominates(made, step) or not graph.reachable(step, made):
            continue
        move = _first_move(side, node, first, set())
        if move is not None:
            by = "" if move is node else f", which `{unparse(node)[:40]}` runs,"
            yield file, node, f"`{unparse(move)[:60]}`{by} would go to the first GPU before the Accelerator chooses one"


def _first_move(side: Side, call: ast.Call, first: set[ast.Call], seen: set[Function]) -> ast.Call | None:
    """The call itself, or one that it runs."""
    if call in first:
        return call
    new = [function for function in side.flows.callees.get(call, ()) if function not in seen]
    files = side.flows.function_file
    new.sort(key=lambda each: (files[each].path, files[each].position(each)))
    seen.update(new)
    inside = [node for function in new for node in walk(function) if isinstance(node, ast.Call)]
    return next((move for node in inside if (move := _first_move(side, node, first, seen)) is not None), None)


def _chosen_alike(told: set[str], own: set[str]) -> bool:
    """Whether the Accelerator was told when to use the CPU, and the script's own choice is between that and its GPU."""
    return bool(told) and own == {"cpu", "cuda"}


def _fed_from_the_cpu(side: Side, devices: Devices) -> Found:
    """What a prepared model is called with, moved to the CPU by name."""
    pinned = {id(node) for _, node, _, found in devices.moves() if found == {"cpu"}}
    cpu_only = any(k.arg == "cpu" for _, call in side.created for k in call.keywords)
    if cpu_only:
        return
    for file, call in side.calls:
        if not side.flows.made(file, call.func, "prepared"):
            continue
        for argument in call.args:
            held = side.once(Stores).reaching(file, argument) if isinstance(argument, ast.Name) else []
            if any(id(value) in pinned for value in [argument, *[store.value for store in held if not store.at]]):
                yield (
                    file,
                    call,
                    f"{unparse(argument)[:40]} would be on the CPU, and {unparse(call.func)} on the Accelerator's device",
                )


def _loaded_where_it_was(side: Side) -> Found:
    """`net = torch.load(path)` that is run, and that nothing moves: it is on the GPU that it was saved from."""
    if any(keyword.arg == "cpu" for _, call in side.created for keyword in call.keywords):
        return
    loads = [(f, c) for f, c in side.calls if _loads_in_place(f, c) and side.runs(f, c) and side.after_prepare(f, c)]
    for file, load in loads:
        reached = side.flows.reached([side.flows.place(file, load)], computed=False)
        asked = [(f, c) for f, c in side.calls if side.flows.place(f, c.func) in reached]
        owned = [
            c
            for f, c in side.calls
            if isinstance(c.func, ast.Attribute) and side.flows.place(f, c.func.value) in reached
        ]
        if asked and not any(isinstance(c.func, ast.Attribute) and c.func.attr in ("to", "cuda", "cpu") for c in owned):
            run = unparse(asked[0][1])[:40]
            yield file, load, f"`{unparse(load)[:60]}` would be on the GPU that it was saved from in `{run}`"


def _loads_in_place(file: Module, call: ast.Call) -> bool:
    """`torch.load` that leaves things on the device that they were saved from."""
    told = len(call.args) > 1 or any(keyword.arg == "map_location" for keyword in call.keywords)
    return file.qualified(call.func) == "torch.load" and not told


def _moves_itself(side: Side, devices: Devices, told: set[str]) -> Found:
    """`model.set_device(device)`, `accelerator.unwrap_model(model).set_device(device)`: takes the prepared model elsewhere."""
    bare = {call for _, call in side.asked("unwrap_model")}
    classes = [owner for file in side.files for owner in file.walk(file.tree, ast.ClassDef)]
    methods = [each for owner in classes for each in walk(owner) if isinstance(each, Function)]
    for file, call in side.calls if methods else ():
        function = call.func
        if not isinstance(function, ast.Attribute):
            continue
        if function.value not in bare and not side.flows.made(file, function.value, "prepared"):
            continue
        # By its name, unless modules, optimizers and a script's trainer all have one.
        named = [m for m in methods if getattr(m, "name", "") == function.attr and function.attr not in _OF_ALL]
        for method in side.flows.callees.get(call) or named:
            inside = set(walk(method))
            for _, move, device, found in devices.moves():
                if move not in inside or device is None or isinstance(device, ast.Constant) or not _is_of_self(move):
                    continue  # `self.cuda()` and `self.to("cpu")` say by name what they want
                given = argument_of(method, call, device.id) if isinstance(device, ast.Name) else None
                found = devices.of(file, given) if given is not None else found
                own = (found or {unparse(given or device)}) - {"accelerator", "cuda"}
                if own and not _chosen_alike(told, found):
                    where = " or ".join(sorted(own))
                    yield (
                        file,
                        call,
                        f"`{unparse(call)[:60]}` would move the prepared model to {where}, by `{unparse(move)[:40]}`",
                    )
                    return


_OF_TENSORS = frozenset({
    "shape", "size", "dim", "ndim", "numel", "dtype", "view", "reshape", "float", "long", "half", "data", "grad", "item",
    "unsqueeze", "squeeze", "transpose", "permute", "detach", "clone", "new", "new_zeros", "new_tensor", "new_ones",
    "parameters", "buffers", "weight", "bias", "state_dict", "train", "eval", "named_parameters", "is_cuda", "mean", "sum",
    "t", "argmax", "argmin", "argsort", "topk", "softmax", "log_softmax", "sigmoid", "flatten", "repeat", "expand", "nonzero",
    "requires_grad", "unbind", "chunk", "contiguous", "type_as",
})  # fmt: skip


def _is_computed_with(file: Module, node: ast.expr) -> bool:
    """`x + y`, `x.shape`, `model(x)`, `torch.cat([x])`, `for x in loader`: a tensor, or a module."""
    above = file.parents[node]
    if isinstance(node.ctx, ast.Store):  # type: ignore[attr-defined]
        outer = file.parents.get(above) if isinstance(above, ast.Tuple) else above
        value = outer.value if isinstance(outer, ast.Assign) else None
        torchs = isinstance(value, ast.Call) and _first_called(file, value).startswith("torch.")
        return isinstance(outer, ast.For | ast.comprehension | ast.BinOp) or torchs or isinstance(value, ast.BinOp)
    if isinstance(above, ast.Attribute):
        return above.attr.removesuffix("_") in _OF_TENSORS
    if isinstance(above, ast.BinOp | ast.UnaryOp | ast.AugAssign):
        return True
    if isinstance(above, ast.Subscript):
        return above.value is not node or isinstance(above.slice, ast.Slice | ast.Tuple) or _is_number(above.slice)
    if isinstance(above, ast.Call):
        if above.func is node:
            return True
        dotted = file.qualified(above.func) or ""
        layer = (
            isinstance(above.func, ast.Attribute)
            and isinstance(above.func.value, ast.Name)
            and above.func.value.id == "self"
        )
        return dotted.startswith("torch.") or (node in above.args and layer and not dotted)
    return False


def _first_called(file: Module, call: ast.Call) -> str:
    """`torch.from_numpy` of `torch.from_numpy(rows).float()`."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return _first_called(file, inner) if isinstance(inner, ast.Call) else file.qualified(call.func) or ""


def _is_number(index: ast.expr) -> bool:
    """`scores[0]`, `x[-1]`: no setting has numbers for names."""
    inner = index.operand if isinstance(index, ast.UnaryOp) else index
    return isinstance(inner, ast.Constant) and type(inner.value) is int


def _is_module(file: Module, owner: ast.expr) -> bool:
    """`self.device` in a class that is derived from something: a module's own, as a property gives it."""
    if not isinstance(owner, ast.Name):
        return False
    scope = file.scope(owner).owner_class
    return scope is not None and owner.id == "self" and bool(getattr(scope.node, "bases", ()))


def _is_of_self(move: ast.Call) -> bool:
    """`self.to(device)`, `self.net.to(device)`."""
    owner = move.func.value if isinstance(move.func, ast.Attribute) else None
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    return isinstance(owner, ast.Name) and owner.id == "self"


class Devices:
    """Which devices the moves of a program lead to, through variables, attributes, parameters and results."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._moves: list[tuple[Module, ast.Call, ast.expr | None, set[str]]] | None = None
        self._known: dict[ast.expr, set[str]] = {}
        self._found: dict[ast.expr, set[str]] = {}  # of the question that is being answered: each expression once
        self._options = {option for _, call in side.calls for option in _options(call)}
        self._owners: set[str] = set()  # of attributes that are called device
        self._keyed: dict[
            object, list[tuple[Module, ast.expr]]
        ] = {}  # what entries of mappings are set to, by their keys
        self._assigned: dict[tuple[Scope | None, str], list[tuple[Module, ast.expr]]] = {}
        self._in_classes: dict[str, list[tuple[Module, ast.expr]]] = {}  # what classes have, read as `Config.device`
        for file in side.files:
            for node in file.walk(file.tree, ast.Assign, ast.AnnAssign, ast.NamedExpr):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(file, target, node.value)
                elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    self._assign(file, node.target, node.value)
            for mapping in file.walk(file.tree, ast.Dict):
                for key, value in zip(mapping.keys, mapping.values):
                    if isinstance(key, ast.Constant):
                        self._keyed.setdefault(key.value, []).append((file, value))

    def moves(self) -> list[tuple[Module, ast.Call, ast.expr | None, set[str]]]:
        """Calls that put something on a device: the expression that names it, and the devices it may be."""
        if self._moves is None:
            self._moves = []
            for file, call in self._side.calls:
                for named in self._named(file, call):
                    self._moves.append((file, call, named, self.of(file, named)))
                if isinstance(call.func, ast.Attribute) and not file.qualified(call.func) and not call.args:
                    if call.func.attr in ("cpu", "cuda") and not call.keywords:
                        self._moves.append((file, call, None, {call.func.attr}))
        return self._moves

    def assigned(self, file: Module, node: ast.expr) -> list[ast.expr]:
        """The values that a name gets."""
        if not isinstance(node, ast.Name):
            return []
        return [value for _, value in self._assigned.get((file.binder(node.id, file.scope(node)), node.id), ())]

    def follows(self, file: Module, node: ast.Attribute) -> bool:
        """Whether `owner.device` is the Accelerator's, or where something is already."""
        return is_accelerator(node.value) or self._is_placed(file, node.value)

    def entries(self, key: object) -> list[tuple[Module, ast.expr]]:
        """What entries of mappings are set to under a key."""
        return self._keyed.get(key, [])

    def is_option(self, file: Module, node: ast.Attribute) -> bool:
        """Whether a parser fills an attribute."""
        return self._is_told(file, node.attr, node)

    def set_to(self, file: Module, node: ast.Name | ast.Attribute) -> list[tuple[Module, ast.expr]]:
        """The values that a name or attribute gets anywhere, also one of another file."""
        dotted = file.qualified(node)
        there = self._side.program.locate(file, dotted) if dotted else None
        if there is not None and there[1] is not None:
            return self._assigned.get((there[0].root, there[1]), [])
        if isinstance(node, ast.Attribute):
            return [*self._assigned.get((None, node.attr), ()), *self._in_classes.get(node.attr, ())]
        return self._assigned.get((file.binder(node.id, file.scope(node)), node.id), [])

    def set_from_accelerator(self, told: ast.expr) -> Iterator[str]:
        """The options that the Accelerator is told of, and that are set to its device from then on."""
        for node in walk(told):
            if isinstance(node, ast.Attribute):
                values = [value for _, value in self._assigned.get((None, node.attr), ())]
                if any("accelerator.device" in unparse(value) for value in values):
                    yield node.attr

    def of(self, file: Module, node: ast.expr) -> set[str]:
        """The devices that an expression may name."""
        if node not in self._known:
            self._found = {}
            self._known[node] = self._devices(file, node, 0)
        return self._known[node]

    def _named(self, file: Module, call: ast.Call) -> Iterator[ast.expr]:
        """The expressions of a call that name a device; what the project's own functions are told is looked up in them."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda") and call.args:
            if not (file.qualified(call.args[0]) or "").startswith("torch."):
                yield call.args[0]
        named = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
        if named and not self._side.flows.callees.get(call) and not _only_notes(call):
            yield from named

    def _devices(self, file: Module, node: ast.expr, depth: int) -> set[str]:
        """The devices that an expression may name; what is not known is named by its text."""
        if node not in self._found and depth <= _DEPTH:
            self._found[node] = set()  # one that is made of itself is what else it is made of
            self._found[node] = self._named_by(file, node, depth)
        return self._found.get(node, set())

    def _named_by(self, file: Module, node: ast.expr, depth: int) -> set[str]:
        match node:
            case ast.Attribute(attr="device") if is_accelerator(node.value):
                return {"accelerator"}
            case ast.Attribute(attr="device") if self._is_placed(file, node.value):
                return set()  # of a tensor: it follows what it meets
            case ast.Constant(value=str(text)):
                return {text} if text.split(":")[0] in ("cpu", "cuda", "mps", "xpu") else set()
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return {f"cuda:{number}"}
            case ast.IfExp() if any(getattr(part, "attr", "") in ("is_cuda", "device") for part in walk(node.test)):
                return set()  # as a tensor is: it follows what it meets
            case ast.IfExp():
                return self._devices(file, node.body, depth + 1) | self._devices(file, node.orelse, depth + 1)
            case ast.BoolOp():
                return {each for value in node.values for each in self._devices(file, value, depth + 1)}
            case ast.Call(args=[_, ast.Constant(value=0)], keywords=[]) if file.qualified(node.func) == "torch.device":
                return {"cuda:0"}
            case ast.Call(args=[_, _]) | ast.Call(keywords=[_]) if file.qualified(node.func) == "torch.device":
                return {unparse(node)}
            case ast.Call(args=[first, *_]) if file.qualified(node.func) == "torch.device":
                return self._devices(file, first, depth + 1) or {unparse(node)}
            case ast.BinOp() if not any(
                isinstance(part, ast.Constant) and isinstance(part.value, str) for part in walk(node)
            ):
                return set()  # of tensors: `x.to(y + z)` follows them
            case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant())) | ast.JoinedStr() | ast.BinOp():
                numbers = [self._devices(file, part, depth + 1) for part in _filled_in(node)]
                return {"cuda:0"} if numbers and all(n == {"cuda:0"} for n in numbers) else {unparse(node)}
            case ast.Call(func=ast.Name(id="str"), args=[inner]):
                return self._devices(file, inner, depth + 1)
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return self._entry(file, node, key, depth)
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
                return self._entry(file, node, key, depth)
            case ast.Call():
                return self._returned(file, node, depth)
            case ast.Name():
                binder = file.binder(node.id, file.scope(node))
                return self._of_module(file, node, depth) or self._of(file, binder, node.id, node, depth)
            case ast.Attribute():
                found = self._of_module(file, node, depth) or self._of(file, None, node.attr, node, depth)
                return found or ({unparse(node)} if node.attr == "device" else set())  # chosen outside of the program
        return set()

    def _entry(self, file: Module, node: ast.expr, key: str, depth: int) -> set[str]:
        """An entry of a mapping: what the program sets it to; where it does not, it is chosen outside, and named by its text."""
        known = self._keyed.get(key, ())
        if not known:
            return set() if "type" in key else {unparse(node)}
        return {each for home, value in known for each in self._devices(home, value, depth + 1)}

    def _of_module(self, file: Module, node: ast.expr, depth: int) -> set[str]:
        """`config.DEVICE`, or `DEVICE` that is imported from a file of the project."""
        dotted = file.qualified(node)
        there = self._side.program.locate(file, dotted) if dotted else None
        if there is None or there[1] is None:
            return set()
        known = self._assigned.get((there[0].root, there[1]), ())
        return {each for home, value in known for each in self._devices(home, value, depth + 1)}

    def _is_placed(self, file: Module, owner: ast.expr) -> bool:
        """Whether `owner.device` is where something is: of what is computed with, called or a part of a module; not a setting."""
        if self._keeps_device(file, owner):
            return False
        while isinstance(owner, ast.Subscript):
            if _is_number(owner.slice):
                return True
            owner = owner.value
        if not isinstance(owner, ast.Name | ast.Attribute):
            return True
        if self._side.flows.made(file, owner, "prepared") or _is_module(file, owner):
            return True
        if isinstance(owner, ast.Attribute) and (owner.attr in ("weight", "bias") or self._is_registered(file, owner)):
            return True
        if any(_is_weight(value) for value in self.assigned(file, owner)):
            return True
        last = owner.id if isinstance(owner, ast.Name) else owner.attr
        scope = file.scope(owner).frame.node if isinstance(owner, ast.Name) else file.tree
        return self._is_handed_tensors(file, owner) or any(
            isinstance(node, ast.Name | ast.Attribute)
            and (node.id if isinstance(node, ast.Name) else node.attr) == last
            and type(node) is type(owner)
            and _is_computed_with(file, node)
            for node in walk(scope)
        )

    def _is_handed_tensors(self, file: Module, owner: ast.expr) -> bool:
        """Whether a parameter is what a layer computes with, or each call gives a tensor: `search(scores.transpose(0, 1))`."""
        scope = file.binder(owner.id, file.scope(owner)) if isinstance(owner, ast.Name) else None
        if scope is None or not isinstance(owner, ast.Name) or not isinstance(scope.node, Function):
            return False
        layer = scope.owner_class
        derived = layer is not None and bool(getattr(layer.node, "bases", ()))
        if derived and getattr(scope.node, "name", "") == "forward":
            return not _SETTING.search(owner.id)
        given = [(site.file, argument_of(scope.node, site.call, owner.id)) for site in self._side.above(scope.node)]
        return bool(given) and all(
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in _OF_TENSORS
            and at.qualified(each.func) is None
            for at, each in given
        )

    def _is_registered(self, file: Module, owner: ast.Attribute) -> bool:
        """`self.rates` of a class that registers buffers, and which nothing sets."""
        around = file.scope(owner).owner_class
        registers = around is not None and any(
            isinstance(node, ast.Attribute) and node.attr == "register_buffer" for node in walk(around.node)
        )
        return registers and getattr(owner.value, "id", "") == "self" and (None, owner.attr) not in self._assigned

    def _keeps_device(self, file: Module, owner: ast.expr) -> bool:
        """Whether `owner.device` is a setting: the script stores it, or a parser fills it."""
        return unparse(owner) in self._owners or bool(self._side.flows.made(file, owner, "options"))

    def _returned(self, file: Module, call: ast.Call, depth: int) -> set[str]:
        found: set[str] = set()
        for function in self._side.flows.callees.get(call, ()):
            home = self._side.flows.function_file[function]
            for node in walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    found |= self._devices(home, node.value, depth + 1)
        return found

    def _of(self, file: Module, scope: Scope | None, name: str, node: ast.expr, depth: int) -> set[str]:
        found: set[str] = set()
        if scope is None and isinstance(node, ast.Name) and "*" in file.imports and not hasattr(builtins, name):
            return {f"`{name}`, which a star import brings"}
        if scope is None and self._is_told(file, name, node):
            found.add(f"the option --{name}")
        assigned = [(home, value) for home, value in self._assigned.get((scope, name), ()) if value is not node]
        assigned = assigned or (self._in_classes.get(name, []) if isinstance(node, ast.Attribute) else [])
        for home, value in [each for each in assigned if self._side.runs(*each)] or assigned:
            found |= self._devices(home, value, depth + 1)
        if scope is not None and isinstance(scope.node, Function):
            default = default_of(scope.node, name)
            if default is not None:
                found |= self._devices(file, default, depth + 1)
        if scope is not None and isinstance(scope.node, Function):
            sites = self._side.above(scope.node)
            for site in [site for site in sites if self._side.runs(site.file, site.call)] or sites:
                given = argument_of(scope.node, site.call, name)
                if given is not None:
                    found |= self._devices(site.file, given, depth + 1)
        return found

    def _is_told(self, file: Module, name: str, node: ast.expr) -> bool:
        return name in self._options and not self._is_set_by_class(file, node) and not self._is_set(name)

    def _is_set(self, option: str) -> bool:
        """`args.device = ...` below each `args = parser.parse_args()`: nothing reads what the option says."""
        return bool(self._parsed) and all(_is_set_below(file, statement, option) for file, statement in self._parsed)

    @cached_property
    def _parsed(self) -> list[tuple[Module, ast.stmt]]:
        return [(f, f.statement(c)) for f, c in self._side.calls if getattr(c.func, "attr", "") == "parse_args"]

    def _is_set_by_class(self, file: Module, node: ast.expr) -> bool:
        """`self.device` of a class that sets it: not the option of that name."""
        owner = node.value if isinstance(node, ast.Attribute) else node
        made = self._side.flows.made(file, owner)
        return any(each.kind == "instance" for each in made) and unparse(owner) in self._owners

    def _assign(self, file: Module, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            binder = file.binder(target.id, file.scope(target))
            self._assigned.setdefault((binder, target.id), []).append((file, value))
            if binder is not None and binder.is_class:
                self._in_classes.setdefault(target.id, []).append((file, value))
        elif isinstance(target, ast.Attribute):
            if target.attr == "device":
                self._owners.add(unparse(target.value))
            self._assigned.setdefault((None, target.attr), []).append((file, value))
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            self._keyed.setdefault(target.slice.value, []).append((file, value))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for part, each in zip(target.elts, value.elts):
                self._assign(file, part, each)


def _is_set_below(file: Module, parsed: ast.stmt, option: str) -> bool:
    if isinstance(parsed, ast.Assign):
        block, name = file.block(parsed), f"{unparse(parsed.targets[0])}.{option}"
        for later in block[block.index(parsed) + 1 :]:
            used = {type(n.ctx) for n in file.walk(later, ast.Attribute) if unparse(n) == name}
            if used:
                return used == {ast.Store} and isinstance(later, ast.Assign) and unparse(later.targets[0]) == name
    return False


def _filled_in(text: ast.expr) -> list[ast.expr]:
    """`n` of `f"cuda:{n}"`, `"cuda:{}".format(n)`, `"cuda:" + str(n)` and `"cuda:%d" % n`."""
    match text:
        case ast.JoinedStr():
            return [part.value for part in text.values if isinstance(part, ast.FormattedValue)]
        case ast.Call():
            return text.args
        case ast.BinOp():
            return [text.right]
    return []


def _is_weight(value: ast.expr) -> bool:
    """`next(model.parameters())`."""
    return isinstance(value, ast.Call) and unparse(value.func) == "next" and ".parameters()" in unparse(value)


def _only_notes(call: ast.Call) -> bool:
    """`SimpleNamespace(device=...)`, `parser.set_defaults(device=...)`: a setting, which moves nothing by itself."""
    name = called_name(call)
    return name in _SETTINGS


def _options(call: ast.Call) -> Iterator[str]:
    """The names under which a parser's option is read."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value.lstrip("-").replace("-", "_")


CONDITION = Condition(
    code="AM956",
    name="devices_together",
    summary="a model and its data would be on different devices",
    why="The prepared model is on the Accelerator's device. What meets it must be there too: all moves to a "
    "device of the script are taken over, or none, and a device that the script chose by an option is "
    "given to the Accelerator.",
    example_before="model = accelerator.prepare(model)\nloss = model(x.to(args.device))",
    example_after="model = accelerator.prepare(model)\nloss = model(x.to(accelerator.device))",
    find=at_places("AM956", _found),
)
