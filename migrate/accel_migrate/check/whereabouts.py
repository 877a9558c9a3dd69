"""Where tensors are, as far as a program says so: on the CPU, or on the device that it moves things to.

The question goes backwards from an expression to what it is made of, through variables, parameters and what functions
return. A move under a condition of the script (`if use_cuda: x = x.cuda()`) counts, unless the condition is known to be
false where the function was called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from accel_migrate.check.evidence import Side, argument_of, is_accelerator, parameter_names, step_of
from accel_migrate.check.known_tests import KnownTests
from accel_migrate.check.stores import Path, Store, Stores, returned
from accel_migrate.flow.calls import Place
from accel_migrate.flow.definitions import BUILTINS
from accel_migrate.flow.fields import self_of
from accel_migrate.flow.nodes import called_name, children, walk
from accel_migrate.flow.program import Function, default_of
from accel_migrate.flow.scopes import Module
from accel_migrate.flow.tensor_types import stays_on_cpu

CPU, DEVICE, UNKNOWN = "cpu", "device", "unknown"
Where = frozenset[str]
NOWHERE: Where = frozenset()  # not a tensor: numbers, texts, arrays
_PLAIN = frozenset(
    {
        "shape", "dtype", "device", "ndim", "is_cuda", "requires_grad", "training", "size", "dim", "numel", "item", "tolist",
        "numpy", "type", "keys", "nelement", "get_device", "is_available", "device_count", "manual_seed",
        "parse_args", "parse_known_args",
    }
)  # fmt: skip
_NUMBERS = frozenset(
    {"int", "float", "len", "str", "bool", "range", "isinstance", "print", "id", "hash", "repr", "type", "open"}
)
_HOLDERS = frozenset(
    {"list", "tuple", "dict", "set", "zip", "enumerate", "sorted", "reversed", "iter", "tqdm", "chain"}
)
_AS_GIVEN = ("whole_batches", "sum_for_metrics")  # which bring each tensor back to the device that it is on
_ELSEWHERE = (
    "numpy.",
    "math.",
    "random.",
    "os.",
    "time.",
    "sys.",
    "json.",
    "glob.",
    "argparse.",
    "collections.",
    "datetime.",
)
_MADE_ON_CPU = frozenset({"tensor", "from_numpy", "Tensor", "FloatTensor", "LongTensor", "IntTensor", "DoubleTensor"})
_FACTORIES = frozenset(
    {
        "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "logspace", "eye",
        "normal", "as_tensor", "range", "tril_indices", "triu_indices", "hann_window",
    }
)  # fmt: skip
_DEPTH = 24
_STEPS = 5000


class Whereabouts:
    """Where the values of one version of a project are."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._known: dict[tuple[ast.expr, ast.Call | None], Where] = {}
        self._asked: dict[tuple[ast.expr, ast.Call | None], int] = {}  # what is being worked out, by depth
        self._parts: set[tuple[ast.expr, Path, ast.Call | None]] = set()  # those that are being worked out
        self._cut = 0  # the least depth of what was left out because it is being worked out
        self._steps = 0

    @cached_property
    def _stores(self) -> Stores:
        return self._side.once(Stores)

    @cached_property
    def _tests(self) -> KnownTests:
        return self._side.once(KnownTests)

    def of(self, file: Module, node: ast.expr, entered: ast.Call | None = None) -> Where:
        """Where a value may be, in a function that was entered by a call (by any of them, if None)."""
        key = (node, entered)
        if key in self._known:
            return self._known[key]
        if key in self._asked:  # made of itself: what else it is made of decides
            self._cut = min(self._cut, self._asked[key])
            return NOWHERE
        depth = len(self._asked)
        self._steps = self._steps + 1 if depth else 0
        if depth > _DEPTH or self._steps > _STEPS:
            return frozenset({UNKNOWN})
        outer, self._cut = self._cut, depth
        self._asked[key] = depth
        found = self._of(file, node, entered)
        del self._asked[key]
        if self._cut >= depth:  # nothing above it was left out
            self._known[key] = found
        self._cut = min(outer, self._cut)
        return found

    def _of(self, file: Module, node: ast.expr, entered: ast.Call | None) -> Where:
        match node:
            case ast.Constant() | ast.JoinedStr() | ast.Lambda():
                return NOWHERE
            case ast.Name():
                return self._variable(file, node, (), entered)
            case ast.Attribute():
                return self._attribute(file, node, entered)
            case ast.Call():
                return self._call(file, node, entered)
            case ast.Subscript(value=ast.Name() as name, slice=ast.Constant(value=key)):
                return self._variable(file, name, (("item", key),), entered)
            case ast.Subscript() | ast.Starred() | ast.Await() | ast.NamedExpr():
                return self.of(file, node.value, entered)
            case ast.IfExp():
                holds = self._tests.truth(file, node.test, entered)
                chosen = [node.body, node.orelse] if holds is None else [node.body if holds else node.orelse]
                return _together(self.of(file, part, entered) for part in chosen)
            case ast.BinOp() | ast.Compare() | ast.UnaryOp() | ast.BoolOp():
                return _together(self.of(file, p, entered) for p in children(node) if isinstance(p, ast.expr))
            case ast.ListComp(elt=made) | ast.SetComp(elt=made) | ast.GeneratorExp(elt=made) | ast.DictComp(value=made):
                return self.of(file, made, entered)
        parts = [self.of(file, part, entered) for part in children(node) if isinstance(part, ast.expr)]
        return frozenset().union(*parts)

    @cached_property
    def moves_anything(self) -> bool:
        """Whether the program names a device at all: if not, all of it is where the model is."""
        return any(
            called_name(call) in ("to", "cuda") or any(keyword.arg == "device" for keyword in call.keywords)
            for _, call in self._side.calls
        )

    # ---- variables

    def _variable(self, file: Module, name: ast.Name, part: Path, entered: ast.Call | None) -> Where:
        stores = [s for s in self._stores.reaching(file, name) if not self._tests.is_skipped(s.file, s.node, entered)]
        parts = [s for s in stores if s.at and not s.anywhere]
        mine = [s for s in parts if part and s.at[0] in (part[0], "element")]
        plain = [s for s in stores if not s.at and not s.anywhere]
        found = [self._stored(s, name, part, entered) for s in (mine or plain if part else [*plain, *parts])]
        again = [
            where
            for s, where in zip(mine or plain if part else [*plain, *parts], found)
            if DEVICE in where and _mentions(s, name.id) and s.at in ((), ("element",))
        ]
        if again:
            return frozenset(
                {DEVICE}
            )  # `x = x.cuda()`, also under a condition: what it was before is on the CPU no more
        scope = file.binder(name.id, file.scope(name))
        function = scope.node if scope is not None else None
        if isinstance(function, Function) and name.id in parameter_names(function):
            whole = [s for s in plain if self._always(file, s, name)]
            found += [] if whole else [self._handed(file, function, name.id, entered)]
        elif not stores:
            return self._imported(file, name) if scope is not None or name.id in BUILTINS else frozenset({UNKNOWN})
        return frozenset().union(*found)

    def _always(self, file: Module, store: Store, name: ast.Name) -> bool:
        graph = self._side.graph(file.scope(name))
        first, use = step_of(file, store.node, graph), step_of(file, name, graph)
        return first is not None and use is not None and first is not use and graph.dominates(first, use)

    def _handed(self, file: Module, function: Function, name: str, entered: ast.Call | None) -> Where:
        sites = [site for site in self._side.above(function) if entered is None or site.call is entered]
        if not sites:
            sites = self._side.above(function)
        found = [
            self.of(site.file, given) if given is not None else self._default(file, function, name)
            for site in sites
            for given in [argument_of(function, site.call, name)]
        ]
        return frozenset().union(*found) if found else frozenset({UNKNOWN})

    def _default(self, file: Module, function: Function, name: str) -> Where:
        default = default_of(function, name)
        return self.of(file, default) if default is not None else frozenset({UNKNOWN})

    def _imported(self, file: Module, name: ast.Name) -> Where:
        there = self._side.program.imported(file, name.id) if file.qualified(name) is not None else None
        if there is not None and there[1] is not None:
            stores = self._stores.of(("name", there[0].root, there[1]))
            return frozenset().union(*[self._stored(s, name, (), None) for s in stores])
        return NOWHERE

    def _stored(self, store: Store, name: ast.Name, part: Path, entered: ast.Call | None) -> Where:
        if store.value is None:
            return frozenset({UNKNOWN})
        return self._part(store.file, store.value, (*store.of, *(part if not store.at else ())), entered)

    def _part(self, file: Module, value: ast.expr, part: Path, entered: ast.Call | None) -> Where:
        """Where a part of a value is: the elements of what a loop goes through, the items of what is unpacked."""
        if not part:
            return self.of(file, value, entered)
        asked = (value, part, entered)
        if asked in self._parts:  # what a function returns of itself: the rest of what it returns decides
            self._cut = 0  # so nothing that is being worked out is an answer for others
            return NOWHERE
        self._parts.add(asked)
        try:
            return self._of_part(file, value, part, entered)
        finally:
            self._parts.discard(asked)

    def _of_part(self, file: Module, value: ast.expr, part: Path, entered: ast.Call | None) -> Where:
        name = called_name(value) if isinstance(value, ast.Call) else ""
        arguments = value.args if isinstance(value, ast.Call) else []
        if part[:1] == ("element",) and name not in ("enumerate", "zip"):
            drawn = self._batches(file, value)
            if drawn is not None:
                return drawn
        match part:
            case ():
                return self.of(file, value, entered)
            case (("item", int(index)), *rest) if isinstance(value, ast.Tuple | ast.List) and index < len(value.elts):
                return self._part(file, value.elts[index], tuple(rest), entered)
            case ("element", *rest) if isinstance(value, ast.Tuple | ast.List):
                return frozenset().union(*[self._part(file, each, tuple(rest), entered) for each in value.elts])
            case ("element", ("item", 0), *_) if name == "enumerate":
                return NOWHERE
            case ("element", ("item", 1), *rest) if name == "enumerate" and arguments:
                return self._part(file, arguments[0], ("element", *rest), entered)
            case ("element", ("item", int(index)), *rest) if name == "zip" and index < len(arguments):
                return self._part(file, arguments[index], ("element", *rest), entered)
        if name == "next" and arguments:
            return self._part(file, arguments[0], ("element", *part), entered)
        if name in ("iter", "tqdm", "list", "cycle", "islice", *_AS_GIVEN) and arguments:
            return self._part(file, arguments[0], part, entered)
        callees = self._side.flows.callees.get(value, ()) if isinstance(value, ast.Call) else ()
        if callees and isinstance(value, ast.Call):
            return frozenset().union(
                *[
                    self._part(self._side.flows.function_file[each], result, part, value)
                    for each in callees
                    for result in returned(each)
                ]
            )
        if isinstance(value, ast.Name) and part[:1] == ("element",):
            stores = [s for s in self._stores.reaching(file, value) if not s.at and not s.anywhere and s.value]
            inner = [(s.file, _item(s)) for s in stores]  # `total, bar = 0, tqdm(loader)`
            if inner and all(isinstance(made, ast.Call) for _, made in inner):
                return frozenset().union(
                    *[self._part(at, made, part, entered) for at, made in inner if made is not None]
                )
        return self.of(file, value, entered)

    def _batches(self, file: Module, loader: ast.expr) -> Where | None:
        """Where the batches of a loader are; None for what is not known to be one."""
        side = self._side
        if side.flows.made(file, loader, "prepared") and side.is_prepared(file, loader):
            placed = [self._is_placed(made.node, made.index) for made in side.flows.made(file, loader, "prepared")]
            return frozenset({DEVICE if all(placed) else CPU})
        return None if side.is_other(file, loader, "loader") else frozenset({CPU})

    def _is_placed(self, prepare: ast.AST, index: int) -> bool:
        keywords = prepare.keywords if isinstance(prepare, ast.Call) else []
        listed = next((keyword.value for keyword in keywords if keyword.arg == "device_placement"), None)
        placed = listed.elts[index] if isinstance(listed, ast.List) and index < len(listed.elts) else None
        return not (isinstance(placed, ast.Constant) and placed.value is False)

    # ---- attributes and calls

    def _attribute(self, file: Module, node: ast.Attribute, entered: ast.Call | None) -> Where:
        if node.attr in _PLAIN or file.qualified(node) is not None:
            return NOWHERE
        owner = self_of(file, node.value)
        if owner is None:
            own: Path = (("attribute", node.attr),)
            value = node.value
            whole = (
                self._variable(file, value, own, entered)
                if isinstance(value, ast.Name)
                else self.of(file, value, entered)
            )
            given = [s for _, s in self._stores.with_attribute(node.attr)] if whole == NOWHERE else []
            return whole.union(*[self._part(s.file, s.value, s.of, None) for s in given if s.value is not None])
        stores = [s for s in self._stores.of(("field of", owner.node, node.attr)) if not s.anywhere]
        if not stores or any(_is_weight(s) for s in stores):
            return frozenset({UNKNOWN})  # weights go where their module goes
        return frozenset().union(*[self._part(s.file, s.value, s.of, None) for s in stores if s.value is not None])

    def _call(self, file: Module, node: ast.Call, entered: ast.Call | None) -> Where:
        name = called_name(node)
        given = [*node.args, *[keyword.value for keyword in node.keywords]]
        moved = self._moved(file, node, entered)
        if moved is not None:
            return moved
        if name in _PLAIN or (isinstance(node.func, ast.Name) and name in _NUMBERS):
            return NOWHERE
        if isinstance(node.func, ast.Name) and name in _HOLDERS:
            return frozenset().union(*[self.of(file, part, entered) for part in given])
        if name == "next" and node.args:
            return self._part(file, node.args[0], ("element",), entered)
        if name in _AS_GIVEN and node.args:
            return self.of(file, node.args[0], entered)
        if self._runs_model(file, node.func):
            return frozenset({DEVICE})
        dotted = file.qualified(node.func) or ""
        if dotted.startswith(_ELSEWHERE):
            return NOWHERE
        if dotted.startswith("torch"):
            return self._of_torch(file, node, dotted, [self.of(file, part, entered) for part in given])
        callees = [
            f for f in self._side.flows.callees.get(node, ()) if getattr(f, "name", "") not in ("forward", "__init__")
        ]
        if callees:
            found = [(self._side.flows.function_file[f], result) for f in callees for result in returned(f)]
            return frozenset().union(*[self.of(home, result, node) for home, result in found])
        if isinstance(node.func, ast.Attribute) and not dotted:
            owner = self.of(file, node.func.value, entered)
            if owner and owner != {UNKNOWN}:
                return owner
        meeting = _together([self.of(file, part, entered) for part in given])
        return meeting if DEVICE in meeting else frozenset({UNKNOWN})

    def _moved(self, file: Module, call: ast.Call, entered: ast.Call | None) -> Where | None:
        """Where a call that names a device puts things."""
        name = called_name(call) if isinstance(call.func, ast.Attribute) else ""
        named = next((keyword.value for keyword in call.keywords if keyword.arg == "device"), None)
        if file.qualified(call.func) is None:
            if name == "cuda" and isinstance(call.func, ast.Attribute):
                return frozenset({DEVICE})
            if name == "cpu" and isinstance(call.func, ast.Attribute):
                return frozenset({CPU})
            if name == "to" and call.args:
                named = call.args[0]
                if (file.qualified(named) or "").startswith("torch."):
                    named = None  # a type
            if self.casts_to_cpu(file, call):
                return frozenset({CPU})
            if name in ("to", "type", "type_as") and named is None and isinstance(call.func, ast.Attribute):
                if name == "type_as" and call.args:
                    return self.of(file, call.args[0], entered)
                if name == "type" and call.args and not _is_plain_type(file, call.args[0]):
                    return frozenset({DEVICE})  # `Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor`
                return self.of(file, call.func.value, entered)
        if named is None or (isinstance(named, ast.Constant) and named.value is None):
            return None
        if isinstance(named, ast.Attribute) and named.attr == "device" and not is_accelerator(named.value):
            given = self._devices_given(file, named.value)
            like = self.of(file, named.value, entered) if not given else NOWHERE
            if like:
                return like
            if given and all(s.value is not None and not s.of and self._is_cpu(s.file, s.value) for s in given):
                return frozenset({CPU})
        return frozenset({CPU if self._is_cpu(file, named) else DEVICE})

    def _devices_given(self, file: Module, owner: ast.expr) -> list[Store]:
        """What an object is given as its device: no tensor is, and no layer of a library."""
        flows, inside = self._side.flows, self_of(file, owner)
        classes = {made.node for made in flows.made(file, owner, "instance")} if inside is None else {inside.node}
        place = flows.place(file, owner)
        found = [store for each in classes for store in self._stores.of(("field of", each, "device"))]
        return found + [store for store, reached in self._options if place in reached]

    @cached_property
    def _options(self) -> list[tuple[Store, set[Place]]]:
        """`args.device = ...`, each with all that its `args` gets to."""
        stores = list(self._stores.with_attribute("device"))
        return [(store, self._side.flows.reached([place], computed=False)) for place, store in stores]

    def casts_to_cpu(self, file: Module, call: ast.Call) -> bool:
        """`x.type(torch.LongTensor)`: the type, by its name or in a variable, may be one of the CPU's tensors."""
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "type" and call.args):
            return False
        kind = call.args[0]
        stores = self._stores.reaching(file, kind) if isinstance(kind, ast.Name) else []
        named = [kind, *[s.value for s in stores if s.value is not None]]
        return stays_on_cpu(n.value if isinstance(n, ast.Constant) else file.qualified(n) for n in named)

    def _is_cpu(self, file: Module, device: ast.expr, asked: frozenset[object] = frozenset()) -> bool:
        """Whether an expression is the CPU whatever happens; what names itself, as in `d = torch.device(d)`, may be any."""
        match device:
            case ast.Constant(value=str(text)):
                return text.split(":")[0] == "cpu"
            case ast.Call(args=[first, *_]) if file.qualified(device.func) == "torch.device":
                return self._is_cpu(file, first, asked)
            case ast.Name():
                variable = self._side.flows.variable(file.scope(device), device.id)
                values = [] if variable in asked else [store.value for store in self._stores.of(variable)]
                return bool(values) and all(
                    isinstance(v, ast.Constant | ast.Call) and self._is_cpu(file, v, asked | {variable}) for v in values
                )
        return False

    def _runs_model(self, file: Module, function: ast.expr) -> bool:
        return bool(
            self._side.flows.made(file, function, "prepared") or self._side.flows.made(file, function, "parallel")
        )

    def _of_torch(self, file: Module, node: ast.Call, dotted: str, given: list[Where]) -> Where:
        last = dotted.rpartition(".")[2]
        if ".cuda." in dotted and last.endswith("Tensor"):
            return frozenset({DEVICE})
        if last in _MADE_ON_CPU:
            return frozenset({CPU})
        if last[:1].isupper() and last not in ("Variable", "Parameter"):
            return NOWHERE  # an object: a layer, a writer
        if last == "load":
            return frozenset({UNKNOWN})
        return _together(given) or frozenset({CPU} if last in _FACTORIES else ())


class Certain(Whereabouts):
    """Where values are for certain: the batches of a plain loader are wherever its data are."""

    def _batches(self, file: Module, loader: ast.expr) -> Where | None:
        found = super()._batches(file, loader)
        return frozenset({UNKNOWN}) if found == frozenset({CPU}) else found


def _is_plain_type(file: Module, node: ast.expr) -> bool:
    """Whether a type of tensors is one of the CPU, or a type of numbers, whatever happens."""
    dotted = file.qualified(node) or (node.value if isinstance(node, ast.Constant) else "")
    return isinstance(dotted, str) and dotted.startswith("torch.") and ".cuda." not in dotted


def _is_weight(store: Store) -> bool:
    made = store.value.func if isinstance(store.value, ast.Call) else None
    return made is not None and (store.file.qualified(made) or "").endswith(".Parameter")


def _item(store: Store) -> ast.expr | None:
    """What a variable was set to, by itself or as one of several."""
    match store.of:
        case ():
            return store.value
        case (("item", int(index)),) if isinstance(store.value, ast.Tuple | ast.List) and index < len(store.value.elts):
            return store.value.elts[index]
    return None


def _together(parts: Iterable[Where]) -> Where:
    """Where the result of an operation is: what meets something on the device is there as well, or nothing would run."""
    found: Where = frozenset().union(*parts)
    return frozenset({DEVICE}) if DEVICE in found else found


def _mentions(store: Store, name: str) -> bool:
    return store.value is not None and any(isinstance(part, ast.Name) and part.id == name for part in walk(store.value))
