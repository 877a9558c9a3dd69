"""Whether an expression of an evaluation leaves nothing behind and draws nothing: then a batch's figure is its own."""

from __future__ import annotations

import ast

from accel_migrate.analysis.evaluation.figures import NotExact
from accel_migrate.analysis.values.constructions import built_calls
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Role, Roles
from accel_migrate.flow.nodes import called_name, is_zero, own_parameters, unparse, walk
from accel_migrate.flow.program import Definition
from accel_migrate.flow.reaching import reaching
from accel_migrate.flow.scopes import Function, Module
from accel_migrate.flow.sequence import comes_first

_BUILTINS = {
    "abs", "all", "any", "bool", "dict", "enumerate", "float", "getattr", "int", "isinstance", "len", "list", "max", "min",
    "range", "round", "set", "sorted", "str", "sum", "tuple", "zip",
}  # fmt: skip
_LIBRARIES = {
    "torch",
    "numpy",
    "math",
    "sklearn",
    "skimage",
    "scipy",
    "torchvision",
    "einops",
    "collections",
    "itertools",
}
_LEAVES = {"save", "load", "seed", "manual_seed", "savetxt", "imsave", "save_image", "put", "copyto", "step"}
_DRAWS = {
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "normal", "normal_", "uniform_",
    "bernoulli", "bernoulli_", "multinomial", "rsample", "sample", "choice", "shuffle", "random_", "gumbel_softmax",
}  # fmt: skip
_CHANGES = {"append", "extend", "add", "update", "insert", "pop", "setdefault", "remove", "clear", "write", "add_batch"}
_STAYS = {"eval", "train", "parameters", "to", "cuda", "cpu", "state_dict", "zero_grad"}
_READS = {
    "expand", "size", "view", "reshape", "unsqueeze", "to", "cpu", "cuda", "item", "repeat", "t", "float", "dim", "index",
    "count",
}  # fmt: skip
_RANDOM = "it draws random numbers, and each process would draw others"


class Quiet:
    """Judges the calls of one loop. `ran` tells whether a model was called."""

    def __init__(self, roles: Roles, graph: CallGraph) -> None:
        self.roles = roles
        self.graph = graph
        self.ran = False
        self.batch: set[str] = set()  # names of a batch that is made anew for each round: it may be changed
        self._known: set[Function] = set()

    def check(self, module: Module, node: ast.AST, own: set[str]) -> None:
        """Raise NotExact unless what is called here leaves nothing behind; `own` are names that live in a round."""
        for part in walk(node):
            if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
                raise NotExact("the loop does more than add up its figures", part)
            if isinstance(part, ast.Call):
                self.call(module, part, own)

    def call(self, module: Module, call: ast.Call, own: set[str]) -> None:
        """The same of one call, whose arguments are judged by themselves."""
        function = call.func
        name = called_name(call)
        dotted = module.full_name(function)
        if _maps(module, call):
            # what a lambda calls is judged by itself: `map(lambda t: t.to(device), (x, y))`
            if not isinstance(call.args[0], ast.Lambda):
                self.call(module, ast.copy_location(ast.Call(call.args[0], call.args[1:], []), call), own)
            return
        if draws(module, call):
            raise NotExact(_RANDOM, call)
        role = self.roles.role(module, function)
        run = function.value if isinstance(function, ast.Attribute) and name == "forward" else function
        if self.roles.role(module, run) & Role.MODEL:
            self._model(module, run, call)
            return
        if role & Role.CRITERION or (isinstance(function, ast.Call) and role):
            return
        target = self.roles.function(module, call)
        if target is not None:
            self._function(target.module, target.node)
            return
        if name in ("keys", "values", "items") and isinstance(function, ast.Attribute):
            return
        if dotted.startswith("os.path.") or (dotted.partition(".")[0] in _LIBRARIES and name not in _LEAVES):
            return
        if isinstance(function, ast.Name) and module.variable(function) is None:
            if name in _BUILTINS:
                return
        if isinstance(function, ast.Attribute) and not dotted:
            if self.roles.role(module, function.value) & Role.MODEL:
                if name in _STAYS:
                    return
                raise NotExact("a method of the model is called in the place of the model", call)
            new = root_of(function.value) in own or _is_new(function.value)
            if name in _READS or (new and (name not in _CHANGES or root_of(function.value) in self.batch)):
                return
        raise NotExact(f"`{unparse(function)}()` is not known to leave nothing behind", call)

    def _model(self, module: Module, model: ast.expr, run: ast.Call) -> None:
        self.ran = True
        earlier = _earlier(module, model)
        for owner, built in built_calls(self.graph, module.variable(model), Role.MODEL):
            replaced = owner is module and module.statement(built) in earlier
            for call in walk(built):  # `Net().to(device)`
                if (made := self.roles.made(owner, call)) is not None:
                    for part in self._parts(made)[replaced:]:  # `model = Head(model.body)` runs parts of it
                        _check_forward(part.module, part.node, run if part is made else None)  # type: ignore[arg-type]

    def _parts(self, model: Definition) -> list[Definition]:
        """The classes of the project that a model is made of, itself the first, and those that they extend."""
        found, nodes = [model], {model.node}
        for part in found:
            for name in (n for n in walk(part.node) if isinstance(n, ast.Name | ast.Attribute)):
                made = self.roles.project.definition(part.module, name)
                if made is not None and isinstance(made.node, ast.ClassDef) and made.node not in nodes:
                    nodes.add(made.node)
                    found.append(made)
        return found

    def _function(self, module: Module, function: Function) -> None:
        """A function of the project: what it binds is its own, what it was given it may read."""
        if function in self._known:
            return
        self._known.add(function)
        given = {a.arg for a in own_parameters(function)}
        bound = {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in walk(function):
            if isinstance(node, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Delete):
                raise NotExact(f"`{function.name}()` is not known to leave nothing behind", node)
            stored = isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load)
            if stored and root_of(node) not in bound - given:  # type: ignore[arg-type]
                raise NotExact(f"`{function.name}()` is not known to leave nothing behind", node)
        for call in (node for statement in function.body for node in walk(statement) if isinstance(node, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            ends = isinstance(module.statement(call), ast.Raise)  # and the run with it
            if ends or (name in _CHANGES and root_of(call.func) in bound - given):
                continue
            self.call(module, call, bound | given)


def _maps(module: Module, call: ast.Call) -> bool:
    """Whether a call is of `map`, and all that it yields is taken at once."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "map" and call.args) or module.variable(call.func):
        return False
    around = module.parents[call]
    unpacked = isinstance(around, ast.Assign) and all(isinstance(target, ast.Tuple) for target in around.targets)
    return unpacked or (isinstance(around, ast.Call) and called_name(around) in ("list", "tuple"))


def _earlier(module: Module, model: ast.expr) -> set[ast.stmt]:
    """The bindings of a model's name that another has replaced where it runs, and that did not take the old one whole."""
    variable = module.variable(model)
    if variable is None or not isinstance(model, ast.Name):
        return set()
    bindings = [b for b in module.bindings(variable) if b.value is not None]
    for name in (n for b in bindings for n in walk(b.value) if isinstance(n, ast.Name)):  # type: ignore[arg-type]
        part = module.parents[name]
        asked = isinstance(module.parents[part], ast.Call) and module.parents[part].func is part  # type: ignore[attr-defined]
        if module.variable(name) == variable and (asked or not isinstance(part, ast.Attribute)):
            return set()  # `model.train()` is the model
    held = {binding.statement for binding in reaching(module, model)}
    return {binding.statement for binding in bindings} - held if held else set()


def draws(module: Module, call: ast.Call) -> bool:
    """Whether a call draws random numbers."""
    name = called_name(call)
    dotted = module.full_name(call.func)
    always = dotted == "torch.nn.functional.dropout" and len(call.args) < 3
    return (
        name in _DRAWS
        or dotted.startswith(("random.", "numpy.random."))
        or (always and not any(keyword.arg == "training" for keyword in call.keywords))
    )


def _check_forward(module: Module, owner: ast.ClassDef, asking: ast.Call | None) -> None:
    """Raise NotExact where a forward pass, that a call is `asking` for, draws numbers, or reads what the one before has left."""
    methods = {method.name: method for method in owner.body if isinstance(method, ast.FunctionDef)}
    run = [methods["forward"]] if "forward" in methods else []
    kept = _Kept(module, methods)
    for method in run:
        own = _own(method)
        run += [methods[n.attr] for n in own if n.attr in methods and methods[n.attr] not in run]
        kept.check(own)
        for call in (n for n in walk(method) if isinstance(n, ast.Call) and draws(module, n)):
            asked = [a.test for a in module.ancestors(call) if isinstance(a, ast.If | ast.IfExp)]
            first = methods.get("forward") if asking is not None else None
            idle = method is first and _decides_nothing(module, call, method, asking)  # type: ignore[arg-type]
            if not idle and not any("training" in unparse(test) for test in asked):
                raise NotExact("the model draws random numbers, and each process would draw others", call)


def _decides_nothing(module: Module, drawn: ast.Call, forward: ast.FunctionDef, run: ast.Call) -> bool:
    """`random.random() < ratio`, of which the evaluation says that it is 0: nothing that is drawn is less."""
    names = [parameter.arg for parameter in own_parameters(forward)][1:]
    handed = dict(zip(names, run.args)) | {keyword.arg: keyword.value for keyword in run.keywords if keyword.arg}
    match module.parents[drawn]:
        case ast.Compare(left=left, ops=[ast.Lt()], comparators=[ast.Name(id=name) as ratio]) if left is drawn:
            rebound = any(binding.kind != "parameter" for binding in module.bindings_of(ratio))
            own = module.scope(drawn).function is forward and not rebound
            plain = not any(isinstance(argument, ast.Starred) for argument in run.args)
            return own and plain and called_name(drawn) in ("random", "rand") and is_zero(handed.get(name))
    return False


def _own(node: ast.AST) -> list[ast.Attribute]:
    return [n for n in walk(node) if isinstance(n, ast.Attribute) and unparse(n.value) == "self"]


class _Kept:
    """What methods of a model read and set of `self`, in the methods that they call as well."""

    def __init__(self, module: Module, methods: dict[str, ast.FunctionDef]) -> None:
        self.module = module
        self.methods = methods
        self.asked: list[str] = []  # the methods that are being looked at

    def check(self, own: list[ast.Attribute]) -> None:
        """NotExact where something is read that is set only later in the same pass."""
        sets = [(node, self._set(node)) for node in own]
        for node in (n for n in own if isinstance(n.ctx, ast.Load)):
            for attr in self._read(node):
                if all(comes_first(self.module, each, node) for each, found in sets if attr in found):
                    continue
                if not self._is_set_above(node, attr) and not _is_set_anew(self.module, node):
                    raise NotExact(f"the model keeps `self.{attr}` from batch to batch", node)

    def _read(self, node: ast.Attribute) -> set[str]:
        """What is read at a node: an attribute, or all that a method reads before it sets it."""
        if node.attr not in self.methods:
            return {node.attr} if isinstance(node.ctx, ast.Load) else set()
        if node.attr in self.asked:
            return set()
        self.asked.append(node.attr)
        inner = _own(self.methods[node.attr])
        found = {attr for each in inner for attr in self._read(each) if not self._is_set_above(each, attr)}
        self.asked.pop()
        return found

    def _set(self, node: ast.Attribute) -> set[str]:
        if isinstance(node.ctx, ast.Store):
            return {node.attr}
        if node.attr not in self.methods or node.attr in self.asked:
            return set()
        self.asked.append(node.attr)
        found = {attr for each in _own(self.methods[node.attr]) for attr in self._set(each)}
        self.asked.pop()
        return found

    def _is_set_above(self, node: ast.AST, attr: str) -> bool:
        """Whether what always runs before it in the same pass sets it, and not to what comes of it: `self.state = fresh(x)`."""
        for above in (node, *self.module.ancestors(node)):
            if isinstance(above, ast.FunctionDef):
                return False
            block = self.module.block(above) if isinstance(above, ast.stmt) else []
            for earlier in block[: block.index(above)] if block else []:  # type: ignore[arg-type]
                if attr in self._surely_set(earlier):
                    return not any(attr in self._read(each) for each in _own(earlier))
        return False

    def _surely_set(self, statement: ast.stmt) -> set[str]:
        """What an assignment sets, or a method that is called by itself: `self.begin(x)`."""
        if isinstance(statement, ast.Assign):
            parts = [part for target in statement.targets for part in getattr(target, "elts", [target])]
            return {part.attr for part in parts if isinstance(part, ast.Attribute) and unparse(part.value) == "self"}
        called = (
            statement.value.func if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
        )
        method = self.methods.get(called.attr) if isinstance(called, ast.Attribute) else None
        if method is None or unparse(called.value) != "self" or method.name in self.asked:  # type: ignore[union-attr]
            return set()
        return {attr for each in method.body if isinstance(each, ast.Assign) for attr in self._surely_set(each)}


def _is_set_anew(module: Module, node: ast.Attribute) -> bool:
    """`if size != self.size: self.size = size`: after which it holds the same whatever it was."""
    compared, around = module.parents[node], module.statement(node)
    if not isinstance(compared, ast.Compare) or not isinstance(around, ast.If) or around.test is not compared:
        return False
    others = [unparse(part) for part in (compared.left, *compared.comparators) if part is not node]
    sets = [f"{unparse(node)} = {other}" for other in others]
    return isinstance(compared.ops[0], ast.NotEq) and [unparse(inner) for inner in around.body] == sets


def root_of(node: ast.expr) -> str:
    """The name that `x` of `x.y[0].z()` is reached by."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.BinOp | ast.Compare):
            node = node.left
        elif isinstance(node, ast.UnaryOp):
            node = node.operand
        else:
            return node.id if isinstance(node, ast.Name) else ""


def _is_new(node: ast.expr) -> bool:
    """Whether a value was just computed, and nobody else holds it: `criterion(out, y)` of `criterion(out, y).item()`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return not isinstance(node, ast.Name)
