"""Which functions, classes and made objects may reach each expression of a program, and so who calls whom.

Every expression has a place. Values flow from place to place by assignment, argument, return and container; `solve` brings
the objects to a fixed point. Attributes are one place per name, whatever object they are of: `args.rank = rank` is seen
again in `self.args.rank`. So are the constant keys of mappings. Only what a class sets on its own objects, and reads there, is
not seen by other classes.
Order does not matter here; `flow.cfg` answers questions of order.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from accel_migrate.flow.fields import Families, self_of
from accel_migrate.flow.nodes import called_name, children, unparse
from accel_migrate.flow.program import Function, Program, parameters
from accel_migrate.flow.scopes import Module, Scope
from accel_migrate.flow.torch_api import GROWS, ITSELF, PASSED_ON

Place = Hashable
_COMPUTED = frozenset([
    "int", "str", "bool", "float", "abs", "min", "max", "any", "all", "len", "getattr", "get", "getenv", "range", "str2bool",
    "format", "join", "Path", "abspath", "replace",
])  # fmt: skip
_LOOKING_UP = frozenset(["globals", "vars", "getattr"])
_CONTAINERS = (
    ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Starred,
)  # fmt: skip


class Made(NamedTuple):
    """Something that exists once for each run of a place in the code: a function, a class, an instance, a result."""

    kind: str  # function, class, instance, or what a caller of `seed` named
    node: ast.AST
    index: int = 0  # type: ignore[assignment]  # which item of a result; for a function, how many arguments it already has


class Site(NamedTuple):
    """A call in its file."""

    file: Module
    call: ast.Call


class Flows:
    """What reaches what in a program."""

    def __init__(self, program: Program, seeds: Iterable[tuple[Module, ast.Call, str]] = ()) -> None:
        """`seeds` are calls whose result is followed: (file, call, kind); a tuple that is unpacked has an index each."""
        self.program = program
        self.objects: dict[Place, set[Made]] = {}
        self.callees: dict[ast.Call, set[Function]] = {}
        self.callers: dict[Function, list[Site]] = {}
        self.function_file: dict[Function, Module] = {}
        self._families = Families(program)
        self._copies: dict[Place, set[Place]] = defaultdict(set)
        self._computed: dict[Place, set[Place]] = defaultdict(set)
        self._origins: dict[Place, list[Place]] | None = None  # the copies backwards, once they are all there
        self._calls: dict[Place, list[Site]] = defaultdict(list)
        self._reads: dict[Place, list[tuple[str, Place]]] = defaultdict(list)
        self._places: dict[ast.AST, Place] = {}
        self._pending: list[tuple[Place, Made]] = []
        self._followed = {id(call): kind for _, call, kind in seeds}
        self._methods: dict[str, list[Function]] = {}
        self._returns: dict[Function, list[ast.expr]] = {}
        for file in program.modules:
            for node in file.walk(file.tree, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda):
                self._define(file, node)
        for file in program.modules:
            self._imports(file)
            for owner in file.walk(file.tree, ast.ClassDef):
                self._put(self.variable(file.scope(owner), owner.name), Made("class", owner))
        self._solve()  # what a class inherits from is known before it is called
        for file in program.modules:
            for constraining in file.walk(file.tree, *_CONSTRAINTS):
                _CONSTRAINTS[type(constraining)](self, file, constraining)
        self._solve()

    # ---- questions

    def made(self, file: Module, node: ast.expr, kind: str = "") -> set[Made]:
        """The objects that may be the value of an expression."""
        found = self.objects.get(self._places.get(node) or self.place(file, node))
        return {each for each in found if not kind or each.kind == kind} if found else set()

    def variable(self, scope: Scope, name: str) -> Place:
        variable = scope.variables[name]
        return ("builtin", name) if variable is None else ("name", *variable)

    def reached(self, seeds: Iterable[Place], computed: bool = True) -> set[Place]:
        """Every place that a value of the seeds gets to; with `computed`, also what is computed from it."""
        found = set(seeds)
        pending = list(found)
        while pending:
            place = pending.pop()
            onward = self._copies.get(place, set()) | (self._computed.get(place, set()) if computed else set())
            for each in onward - found:
                found.add(each)
                pending.append(each)
        return found

    def sources(self, place: Place) -> set[Place]:
        """Every place that the very value of a place may come from, itself included; under a key, what was put there."""
        found = {place}
        pending = [place]
        while pending:
            for each in self._sources_of(pending.pop()):
                if each not in found:
                    found.add(each)
                    pending.append(each)
        return found

    def origins(self, place: Place, seen: frozenset[Place] = frozenset()) -> set[Place]:
        """Where the value of a place began: what a function makes anew is another thing in each call of it."""
        found: set[Place] = set()
        visited = {place}
        pending = [place]
        while pending:
            at = pending.pop()
            before = self._sources_of(at)
            for each in before:
                if isinstance(each, tuple) and each[0] == "result":
                    inner = self.origins(each, seen | {each}) if each not in seen else set()
                    kept = {origin for origin in inner if not _is_call(origin)}
                    found |= kept if kept == inner and inner else kept | {at}
                elif each not in visited:
                    visited.add(each)
                    pending.append(each)
            if not before:
                found.add(at)
        return found

    def inside(self, place: Place) -> set[Place]:
        """What functions made anew of what their call brought to a place: where `origins` stops at the call."""
        results = [each for each in self._sources_of(place) if isinstance(each, tuple) and each[0] == "result"]
        return {origin for each in results for origin in self.origins(each, frozenset([each])) if _is_call(origin)}

    def outside(self, origin: Place) -> dict[ast.AST, set[Place]]:
        """The calls that bring out what the function around a call makes by it, with the places that they bring it to."""
        found: dict[ast.AST, set[Place]] = {}
        visited = {origin}
        pending = [origin]
        while pending:
            at = pending.pop()
            for each in self._copies.get(at, ()):
                if not (isinstance(at, tuple) and at[0] == "result"):
                    pending += [each] if each not in visited else []
                    visited.add(each)
                elif isinstance(each, tuple) and self._is_made_in(at[1], origin):
                    found.setdefault(each[1], set()).add(each)
        return found

    def _is_made_in(self, function: Function, origin: Place) -> bool:
        file = self.function_file[function]
        node = origin[1] if isinstance(origin, tuple) else None
        return node in file.parents and function in file.ancestors(node)

    def _sources_of(self, place: Place) -> list[Place]:
        if self._origins is None:
            self._origins = {}
            for origin, targets in self._copies.items():
                for target in targets:
                    if not _is_keyed(target) or origin[:1] == ("key",):  # type: ignore[index]
                        self._origins.setdefault(target, []).append(origin)
        return self._origins.get(place, [])

    def is_container(self, file: Module, node: ast.expr) -> bool:
        """Whether an expression may hold other objects and not be one of them: a list, a mapping, `*rest`."""
        return any(_is_of_several(place) for place in self.sources(self.place(file, node)))

    def put_into(self, file: Module, node: ast.Name) -> list[ast.AST]:
        """The calls and the targets of assignments that put something into what a name holds."""
        return [place[1] for place in self._sources_of(self.place(file, node)) if place[:1] == ("put",)]  # type: ignore[index]

    def returned(self, function: Function) -> list[ast.expr]:
        """What a function gives back by its own `return`s."""
        if isinstance(function, ast.Lambda):
            return [function.body]
        if function not in self._returns:
            file = self.function_file[function]
            self._returns[function] = [
                node.value
                for node in file.walk(function, ast.Return)
                if node.value is not None and file.scope(node).frame.node is function
            ]
        return self._returns[function]

    def sites(self) -> Iterator[Site]:
        for found in self._calls.values():
            yield from found

    def are_related(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether one of two classes is derived from the other: an object may be of both."""
        return self._is_derived(one, other) or self._is_derived(other, one)

    def _is_derived(self, heir: ast.AST, owner: ast.AST) -> bool:
        found: list[ast.AST] = [heir] if isinstance(heir, ast.ClassDef) else []
        for each in found:
            found += [base for base in self._bases(each) if base not in found]
        return owner in found

    # ---- places of attributes

    def field(self, file: Module, target: ast.Attribute) -> Place:
        """Where an attribute keeps what it is set to."""
        own = self_of(file, target.value)
        return self._own(own, target.attr) if own is not None else self._of_any(target.attr)

    def _own(self, owner: Scope, name: str) -> Place:
        """What the objects of a class have under a name, set by its own methods or from outside."""
        family = self._families.of(owner.node)
        if family is None:
            return self._of_any(name)
        place = ("field", family, name)
        self._copy(place, ("field", name))
        self._copy(("any field", name), place)
        return place

    def _of_any(self, name: str) -> Place:
        """What any object may have under a name, since it is not known of which it is set."""
        self._copy(("any field", name), ("field", name))
        return ("any field", name)

    # ---- places of expressions

    def place(self, file: Module, node: ast.expr) -> Place:
        """Where the value of an expression is; made, with what flows into it, when first asked for."""
        place = self._places.get(node)
        if place is None:
            kind = type(node)
            if kind is ast.Name:
                place = self._places[node] = self.variable(file.scope(node), node.id)  # type: ignore[attr-defined]
                return place
            named = self._of_module(file, node) if kind is ast.Attribute else None
            place = self._places[node] = named or ("expression", node)
            if named is None and kind in _FILLS:
                _FILLS[kind](self, file, node, place)
        return place

    def _of_module(self, file: Module, node: ast.expr) -> Place | None:
        """`engine.train` where engine is a file of the project."""
        dotted = file.qualified(node)
        found = self.program.locate(file, dotted) if dotted else None
        return ("name", found[0].root, found[1]) if found and found[1] in found[0].root.bindings else None

    def _looked_up(self, file: Module, node: ast.expr) -> Iterator[Place]:
        """All that a file of the project names, of `zoo.__dict__`, `vars(zoo)`, `getattr(zoo, name)`.

        Of `globals()` it is what the file defines or imports: its variables are followed where they are named.
        """
        match node:
            case ast.Call(func=ast.Name(id="globals")):
                defined = {getattr(statement, "name", "") for statement in file.tree.body} | file.imports.keys()
                own = {("name", file.root, name) for name in file.root.bindings.keys() - defined}
                yield from (place for place in self._named(file) if place not in own)
            case (
                ast.Attribute(value=module, attr="__dict__")
                | ast.Call(func=ast.Name(id="vars"), args=[module])
                | ast.Call(func=ast.Name(id="getattr"), args=[module, _, *_])
            ):
                found = self.program.locate(file, file.qualified(module) or "")
                yield from self._named(found[0]) if found is not None and found[1] is None else ()

    def _named(self, file: Module) -> Iterator[Place]:
        """The places of a file's names, those that star imports bring included."""
        return (("name", file.root, name) for name in file.root.bindings)

    def _fill_attribute(self, file: Module, node: ast.Attribute, place: Place) -> None:
        if node.attr == "__dict__":
            self._fill_looked_up(file, node, place)
        base = self.place(file, node.value)
        own = self_of(file, node.value)
        closed = own is not None and self._families.of(own.node) is not None
        self._copy(self._own(own, node.attr) if own and closed else ("field", node.attr), place)
        self._compute(base, place)
        self._read(base, node.attr, place)

    def _fill_looked_up(self, file: Module, node: ast.expr, place: Place) -> None:
        for named in self._looked_up(file, node):
            self._copy(named, place)

    def _fill_lambda(self, file: Module, node: ast.Lambda, place: Place) -> None:
        self._put(place, Made("function", node))

    def _fill_choice(self, file: Module, node: ast.IfExp, place: Place) -> None:
        self._copy(self.place(file, node.body), place)
        self._copy(self.place(file, node.orelse), place)
        self._compute(self.place(file, node.test), place)

    def _fill_parts(self, file: Module, node: ast.Tuple | ast.List | ast.Set | ast.BoolOp, place: Place) -> None:
        for part in node.values if isinstance(node, ast.BoolOp) else node.elts:
            self._copy(self.place(file, part), place)

    def _fill_mapping(self, file: Module, node: ast.Dict, place: Place) -> None:
        for key, part in zip(node.keys, node.values):
            self._copy(self.place(file, part), place)
            if isinstance(key, ast.Constant):
                self._copy(self.place(file, part), ("key", key.value))

    def _fill_item(self, file: Module, node: ast.Subscript, place: Place) -> None:
        self._copy(self.place(file, node.value), place)
        if isinstance(node.slice, ast.Constant):
            self._copy(("key", node.slice.value), place)
        elif not isinstance(node.slice, ast.Slice):  # which no mapping has for a key
            self._copy("keyed", place)

    def _fill_inner(self, file: Module, node: ast.Starred | ast.Await | ast.NamedExpr, place: Place) -> None:
        self._copy(self.place(file, node.value), place)

    def _fill_collected(self, file: Module, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, place: Place) -> None:
        self._copy(self.place(file, node.elt), place)

    def _fill_computed(self, file: Module, node: ast.expr, place: Place) -> None:
        for child in children(node):
            if isinstance(child, ast.expr):
                self._compute(self.place(file, child), place)

    def _fill_call(self, file: Module, node: ast.Call, place: Place) -> None:
        if type(node.func) is ast.Name and node.func.id in _LOOKING_UP:
            self._fill_looked_up(file, node, place)
        called = self.place(file, node.func)
        self._calls[called].append(Site(file, node))
        for made in self.objects.get(called, ()):
            self._pending.append((called, made))
        if id(node) in self._followed:
            self._put(place, Made(self._followed[id(node)], node))
        name = called_name(node)
        arguments = [*node.args, *[keyword.value for keyword in node.keywords]]
        if name == "partial" and node.args:
            self._copy(self.place(file, node.args[0]), ("partial", node))
            self._calls["partial", node].append(Site(file, node))
        elif name == "super" and isinstance(node.func, ast.Name):
            owner = file.scope(node).owner_class
            for base in self._bases(owner.node) if owner is not None else ():
                self._put(place, Made("instance", base))
        elif name in PASSED_ON:
            for argument in [*node.args, *[k.value for k in node.keywords if k.arg == "iterable"]]:
                self._copy(self.place(file, argument), place)
        elif name in _COMPUTED:
            if name == "get" and isinstance(node.func, ast.Attribute):
                self._copy(self.place(file, node.func.value), place)
            changed = [node.func.value] if name == "replace" and isinstance(node.func, ast.Attribute) else []
            for argument in [*arguments, *changed]:
                self._compute(self.place(file, argument), place)
        elif name in GROWS and isinstance(node.func, ast.Attribute):
            for argument in arguments:
                self._copy(self.place(file, argument), ("put", node))
            self._copy(("put", node), self.place(file, node.func.value))
            if isinstance(node.func.value, ast.Attribute):
                self._copy(("put", node), self.field(file, node.func.value))
        elif name in ITSELF and isinstance(node.func, ast.Attribute):
            self._copy(self.place(file, node.func.value), place)
        elif name == "setattr" and len(node.args) == 3 and isinstance(node.args[1], ast.Constant):
            self._copy(self.place(file, node.args[2]), self._of_any(str(node.args[1].value)))
        for argument in arguments:
            self.place(file, argument)

    # ---- constraints of statements

    def _define(self, file: Module, node: Function) -> None:
        self.function_file[node] = file
        scope = file.scopes[node]
        if isinstance(node, ast.Lambda):
            self._copy(self.place(file, node.body), ("result", node))
            return
        owner = scope.parent
        if owner is not None and owner.is_class:
            self._methods.setdefault(node.name, []).append(node)
            first = parameters(node)[:1]
            if first and not _is_static(node):
                self._put(("name", scope, first[0].arg), Made("instance", owner.node))
        if owner is not None:
            self._put(("name", owner, node.name), Made("function", node))

    def _imports(self, file: Module) -> None:
        for name in file.imports:
            found = self.program.imported(file, name)
            if found is not None and found[1] is not None:
                for scope in file.imported_in.get(name, ()):
                    self._copy(("name", found[0].root, found[1]), ("name", scope, name))

    def _constrain_value(self, file: Module, node: ast.expr) -> None:
        self.place(file, node)

    def _constrain_assignment(self, file: Module, node: ast.Assign) -> None:
        for target in node.targets:
            self._flow(file, node.value, target)

    def _constrain_target(self, file: Module, node: ast.AnnAssign | ast.AugAssign | ast.NamedExpr) -> None:
        if node.value is not None:
            self._flow(file, node.value, node.target)

    def _constrain_loop(self, file: Module, node: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        self._into(file, self.place(file, node.iter), node.target)

    def _constrain_entered(self, file: Module, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._flow(file, node.context_expr, node.optional_vars)

    def _constrain_return(self, file: Module, node: ast.Return) -> None:
        if node.value is not None:
            function = file.scope(node).frame.node
            self._copy(self.place(file, node.value), ("result", function))
            if isinstance(node.value, ast.Tuple):
                for index, part in enumerate(node.value.elts):
                    self._copy(self.place(file, part), ("result", function, index))

    def _constrain_test(self, file: Module, node: ast.If | ast.While | ast.IfExp) -> None:
        self.place(file, node.test)

    def _flow(self, file: Module, value: ast.expr, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            parts = target.elts
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
                for item, part in zip(parts, value.elts):
                    self._flow(file, part, item)
                return
            if isinstance(value, ast.Call) and not any(isinstance(part, ast.Starred) for part in parts):
                self.place(file, value)
                for index, part in enumerate(parts):
                    if id(value) in self._followed:
                        self._put(("item", value, index), Made(self._followed[id(value)], value, index))
                    self._into(file, ("item", value, index), part)
                return
        self._into(file, self.place(file, value), target)

    def _into(self, file: Module, place: Place, target: ast.expr) -> None:
        match target:
            case ast.Name():
                self._copy(place, self.variable(file.scope(target), target.id))
                if file.scope(target).is_class:
                    self._copy(place, self._own(file.scope(target), target.id))
            case ast.Attribute():
                self._copy(place, self.field(file, target))
            case ast.Subscript():
                if isinstance(target.slice, ast.Constant):
                    self._copy(place, ("key", target.slice.value))
                    self._copy(place, "keyed")
                else:
                    self._copy(place, ("put", target))
                    self._copy(("put", target), self.place(file, target.value))
            case ast.Starred():
                self._into(file, place, target.value)
            case ast.Tuple() | ast.List():
                for part in target.elts:
                    self._into(file, place, part)

    # ---- the fixed point

    def _copy(self, source: Place, target: Place) -> None:
        known = self._copies[source]
        if target not in known and source != target:
            known.add(target)
            if source in self.objects:
                self._pending += [(target, made) for made in self.objects[source]]

    def _compute(self, source: Place, target: Place) -> None:
        self._computed[source].add(target)

    def _put(self, place: Place, made: Made) -> None:
        self._pending.append((place, made))

    def _read(self, base: Place, name: str, place: Place) -> None:
        self._reads[base].append((name, place))
        if base in self.objects:
            self._pending += [(base, made) for made in self.objects[base]]

    def _solve(self) -> None:
        done: set[tuple[Place, Made]] = set()
        while self._pending:
            place, made = self._pending.pop()
            self.objects.setdefault(place, set()).add(made)
            first = (place, made) not in done
            done.add((place, made))
            if first:
                self._pending += [(each, made) for each in self._copies.get(place, ())]
            for name, target in tuple(self._reads[place]) if place in self._reads else ():
                method = self._method(made.node, name) if made.kind in ("instance", "class") else None
                if method is not None and made.kind == "instance" and _is_property(method):
                    self._copy(("result", method), target)
                elif method is not None and Made("function", method) not in self.objects.get(target, ()):
                    self._put(target, Made("function", method))
                if method is not None and made.kind == "instance":
                    self._hand_self(method, made)
            for site in tuple(self._calls[place]) if place in self._calls else ():
                self._bind(site, place, made)

    def _hand_self(self, method: Function, made: Made) -> None:
        """A method that a class inherits gets an object of that class: what it calls on it may be that class's own."""
        scope = self.function_file[method].scopes[method]
        first = parameters(method)[:1]
        if scope.parent is not None and scope.parent.node is not made.node and first and not _is_static(method):
            place = ("name", scope, first[0].arg)
            if made not in self.objects.get(place, ()):
                self._put(place, made)

    def _bind(self, site: Site, place: Place, made: Made) -> None:
        result = self._places.get(site.call) or ("expression", site.call)
        partial = place == ("partial", site.call)
        function: ast.AST | None = None
        match made.kind:
            case "function":
                function = made.node
            case "class":
                if Made("instance", made.node) not in self.objects.get(result, ()):
                    self._put(result, Made("instance", made.node))
                function = self._method(made.node, "__init__")
            case "instance":
                function = self._method(made.node, "__call__") or self._method(made.node, "forward")
        if not isinstance(function, Function):
            if isinstance(made.node, ast.ClassDef) and made.kind == "class":
                self._bind_fields(site, made.node)
            return
        given = site.call.args[1:] if partial else site.call.args
        if partial:
            self._put(result, Made("function", function, made.index + len(given)))
        elif function in self.callees.get(site.call, ()):
            return
        else:
            self.callees.setdefault(site.call, set()).add(function)
            self.callers.setdefault(function, []).append(site)
            if made.kind != "class":
                self._copy(("result", function), result)
                self._copy_items(function, site.call)
        self._bind_arguments(site, function, given, made)

    def _bind_fields(self, site: Site, owner: ast.ClassDef) -> None:
        """`Settings(1, save)`: what a class without a constructor of its own, as a dataclass, keeps in its fields."""
        for name, argument in zip(self._fields(owner), site.call.args):
            self._copy(self.place(site.file, argument), self._of_any(name))
        for keyword in site.call.keywords:
            if keyword.arg is not None:
                self._copy(self.place(site.file, keyword.value), self._of_any(keyword.arg))

    def _fields(self, owner: ast.ClassDef, depth: int = 0) -> list[str]:
        """The annotated names of a class, those that it inherits first."""
        bases = [base for base in self._bases(owner) if isinstance(base, ast.ClassDef) and depth < 8]
        inherited = [name for base in bases for name in self._fields(base, depth + 1)]
        annotated = [each.target for each in owner.body if isinstance(each, ast.AnnAssign)]
        return [*inherited, *[target.id for target in annotated if isinstance(target, ast.Name)]]

    def _copy_items(self, function: Function, call: ast.Call) -> None:
        indexed = 0
        while ("result", function, indexed) in self._copies or self._has_item(function, indexed):
            self._copy(("result", function, indexed), ("item", call, indexed))
            indexed += 1
        if not indexed:
            for index in range(16):
                if ("item", call, index) in self._copies:
                    self._copy(("result", function), ("item", call, index))

    def _has_item(self, function: Function, index: int) -> bool:
        """Whether every value that a function returns is a tuple with such an item."""
        returns = self.returned(function)
        return bool(returns) and all(isinstance(each, ast.Tuple) and index < len(each.elts) for each in returns)

    def _bind_arguments(self, site: Site, function: Function, given: list[ast.expr], made: Made) -> None:
        file = self.function_file[function]
        scope = file.scopes[function]
        known = function.args
        positional = [*known.posonlyargs, *known.args]
        owner = scope.parent
        decorators = [] if isinstance(function, ast.Lambda) else [unparse(d) for d in function.decorator_list]
        bound = "classmethod" in decorators or not self._through_class(site)
        wrapped = file.parents.get(function)
        if isinstance(wrapped, ast.Call):
            bound = False  # `staticmethod(lambda net: ...)`
        if owner is not None and owner.is_class and not _is_static(function) and bound:
            positional = positional[1:]
        positional = positional[made.index if made.kind == "function" else 0 :]
        for index, argument in enumerate(given):
            place = self.place(site.file, argument)
            if isinstance(argument, ast.Starred):
                for parameter in positional[index:]:
                    self._copy(place, ("name", scope, parameter.arg))
            elif index < len(positional):
                self._copy(place, ("name", scope, positional[index].arg))
            elif known.vararg is not None:
                self._copy(place, ("name", scope, known.vararg.arg))
        names = {parameter.arg for parameter in parameters(function)}
        for keyword in site.call.keywords:
            place = self.place(site.file, keyword.value)
            if keyword.arg in names:
                self._copy(place, ("name", scope, keyword.arg))
            elif known.kwarg is not None:
                self._copy(place, ("name", scope, known.kwarg.arg))

    def _through_class(self, site: Site) -> bool:
        """`Base.method(self, ...)`: the instance is written out."""
        function = site.call.func
        return isinstance(function, ast.Attribute) and any(
            made.kind == "class" for made in self.objects.get(self.place(site.file, function.value), ())
        )

    def _method(self, owner: ast.AST, name: str) -> Function | None:
        """A method of a class, or of the classes of the project that it inherits from."""
        found = self.program.method(self.program.classes[owner], name) if isinstance(owner, ast.ClassDef) else None
        return found.node if found is not None and isinstance(found.node, Function) else None

    def _bases(self, owner: ast.AST) -> list[ast.AST]:
        return [base.node for base in self.program.bases(self.program.classes[owner])]


# What flows into an expression, and what a statement lets flow: each takes a node of its own kinds.
_FILLS: dict[type, Callable[[Flows, Module, Any, Place], None]] = {
    ast.Attribute: Flows._fill_attribute,
    ast.Call: Flows._fill_call,
    ast.Lambda: Flows._fill_lambda,
    ast.IfExp: Flows._fill_choice,
    **dict.fromkeys((ast.BoolOp, ast.Tuple, ast.List, ast.Set), Flows._fill_parts),
    ast.Dict: Flows._fill_mapping,
    ast.Subscript: Flows._fill_item,
    **dict.fromkeys((ast.Starred, ast.Await, ast.NamedExpr, ast.FormattedValue, ast.DictComp), Flows._fill_inner),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp), Flows._fill_collected),
    **dict.fromkeys((ast.Compare, ast.BinOp, ast.UnaryOp, ast.JoinedStr), Flows._fill_computed),
}
_CONSTRAINTS: dict[type[ast.AST], Callable[[Flows, Module, Any], None]] = {
    **dict.fromkeys((ast.Call, ast.BoolOp), Flows._constrain_value),
    ast.Assign: Flows._constrain_assignment,
    **dict.fromkeys((ast.AnnAssign, ast.AugAssign), Flows._constrain_target),
    ast.NamedExpr: Flows._constrain_target,
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.comprehension), Flows._constrain_loop),
    ast.withitem: Flows._constrain_entered,
    ast.Return: Flows._constrain_return,
    **dict.fromkeys((ast.If, ast.While, ast.IfExp), Flows._constrain_test),
}


def _is_property(function: Function) -> bool:
    return not isinstance(function, ast.Lambda) and any("property" in unparse(d) for d in function.decorator_list)


def _is_static(function: Function) -> bool:
    return not isinstance(function, ast.Lambda) and any("static" in unparse(d) for d in function.decorator_list)


def _is_call(place: Place) -> bool:
    match place:
        case ("expression", ast.Call()) | ("item", *_):
            return True
    return False


def _is_of_several(place: Place) -> bool:
    match place:
        case "keyed" | ("put" | "key", *_):
            return True
        case ("expression", node):
            return isinstance(node, _CONTAINERS)
        case ("name", Scope(node=ast.FunctionDef(args=known) | ast.AsyncFunctionDef(args=known)), name):
            return name in {rest.arg for rest in (known.vararg, known.kwarg) if rest is not None}
    return False


def _is_keyed(place: Place) -> bool:
    """`options["folder"]`"""
    match place:
        case ("expression", ast.Subscript(slice=ast.Constant(value=str()))):
            return True
    return False
