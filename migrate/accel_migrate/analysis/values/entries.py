"""What a dictionary has under a key, and a class of settings as an attribute, wherever that is written and handed over."""

from __future__ import annotations

import ast

from accel_migrate.analysis.values.roles import Role, Roles, given_by
from accel_migrate.flow.nodes import is_call_of, unparse
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.scopes import Function, Module, Variable

_DEPTH = 10
Entry = tuple[Module, ast.expr]


def entries(roles: Roles, module: Module, holder: ast.expr, key: object, depth: int = 0) -> list[Entry]:
    """All values that may be there; none where that cannot be known."""
    variable = roles.project.variable(module, holder)
    if variable is None or depth > _DEPTH or _is_filled(roles, variable.name):
        return []
    home = variable.scope.module
    found: list[Entry] = []
    for binding in home.bindings(variable):
        here: list[Entry] = []
        if binding.kind == "parameter":
            for caller, _, handed in given_by(roles.sites, variable):
                there = entries(roles, caller, handed, key, depth + 1) if handed is not None else []
                if not there:
                    return []
                here += there
        elif isinstance(held := binding.whole, ast.Dict):
            pairs = zip(held.keys, held.values)
            here = [(home, value) for name, value in pairs if isinstance(name, ast.Constant) and name.value == key]
            here = [] if None in held.keys else here
        if not here:
            return []
        found += here
    return [*found, *_stored(roles, key)] if found else []


def _stored(roles: Roles, key: object) -> list[Entry]:
    """What statements put under a key, into any dictionary."""
    return [
        (module, node.value)
        for module in roles.project.modules
        for node in module.walk(module.tree, ast.Assign)
        if isinstance(node.targets[0], ast.Subscript)
        and isinstance(node.targets[0].slice, ast.Constant)
        and node.targets[0].slice.value == key
    ]


def _is_filled(roles: Roles, name: str) -> bool:
    """Whether a dictionary of this name gets entries whose keys are not written there: `config.update(given)`."""
    last = name.rpartition(".")[2]
    for module in roles.project.modules:
        for call in module.calls:
            match call.func:
                case ast.Attribute(attr="update" | "setdefault" | "__setitem__", value=owner) if _ends(owner, last):
                    return True
        for node in module.walk(module.tree, ast.Assign, ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
                if _ends(target.value, last):
                    return True
            if isinstance(node, ast.AugAssign) and _ends(target, last):
                return True
    return False


def _ends(node: ast.expr, name: str) -> bool:
    return unparse(node).rpartition(".")[2] == name


def fields(roles: Roles, module: Module, node: ast.Attribute) -> list[Entry]:
    """All values that `Config.device`, or `config.device` of a `Config()`, may have; none where that cannot be known."""
    classes = _classes(roles, module, node.value)
    found: list[Entry] = []
    for each in classes or ():
        home, scope = each.module, each.module.scopes[each.node]
        own = Variable(scope, node.attr)
        set_by_methods = Variable(scope, f"self.{node.attr}")
        values = [binding.value for name in (own, set_by_methods) for binding in home.bindings(name)]
        if not values or None in values or not _is_plain(each.node, home):
            return []
        found += [(home, value) for value in values if value is not None]
        for caller, call in roles.project.calls:
            made = roles.target(caller, call)
            if made is None or made.node is not each.node:
                continue
            if any(keyword.arg is None for keyword in call.keywords):
                return []
            if scope.constructor is not None:
                continue  # what it is handed is asked of its parameters
            if call.args:
                return []
            found += [(caller, keyword.value) for keyword in call.keywords if keyword.arg == node.attr]
    nodes: set[ast.AST] = {each.node for each in classes or ()}
    set_by_name = (_may_set(roles, m, call, nodes) for m, call in roles.project.calls if is_call_of(call, "setattr"))
    return [*found, *_set_later(roles, node.attr)] if found and not any(set_by_name) else []


def _may_set(roles: Roles, module: Module, call: ast.Call, classes: set[ast.AST]) -> bool:
    """Whether `setattr(config, key, value)` may set a field of some classes: not one of `self` of another class, nor a layer."""
    scope, owner = module.scope(call), call.args[0]
    of_self = isinstance(owner, ast.Name) and owner.id == scope.self_name and scope.owner_class is not None
    of_another = of_self and scope.owner_class.node not in classes  # type: ignore[union-attr]
    return not of_another and not any(roles.role(module, part) & Role.MODEL for part in call.args[2:])


def _classes(roles: Roles, module: Module, owner: ast.expr, depth: int = 0) -> list[Definition] | None:
    """The classes of which an expression is one, or an instance; None where that cannot be known."""
    made = roles.target(module, owner) if isinstance(owner, ast.Call) else roles.project.definition(module, owner)
    if made is not None:
        return [made] if isinstance(made.node, ast.ClassDef) else None
    variable = roles.project.variable(module, owner)
    bindings = variable.scope.module.bindings(variable) if variable is not None else []
    if variable is None or not bindings or depth > _DEPTH:
        return None
    found: list[Definition] = []
    for binding in bindings:
        home, value = variable.scope.module, binding.whole
        if binding.kind == "parameter":
            value = default_of(variable.scope.node, variable.name)
        handed = [(m, part) for m, _, part in given_by(roles.sites, variable)] if binding.kind == "parameter" else []
        parts = [(m, part) if part is not None else (home, value) for m, part in handed] or [(home, value)]
        classes = [_classes(roles, m, value, depth + 1) if value is not None else None for m, value in parts]
        if None in classes:
            return None
        found += [one for each in classes for one in each or ()]
    return found


def _is_plain(node: ast.AST, home: Module) -> bool:
    """Whether a class is no more than what is written in it: nothing that it is derived from fills it, nor a dictionary."""
    assert isinstance(node, ast.ClassDef)
    methods = [each.name for each in node.body if isinstance(each, Function)]
    decorated = all(home.full_name(getattr(d, "func", d)) == "dataclasses.dataclass" for d in node.decorator_list)
    bare = all(unparse(base) == "object" for base in node.bases) and not node.keywords
    filled = any(getattr(part, "attr", getattr(part, "id", "")) in ("__dict__", "vars") for part in home.walk(node))
    return bare and decorated and not filled and all(m == "__init__" or not m.startswith("__") for m in methods)


def _set_later(roles: Roles, name: str) -> list[Entry]:
    """What statements set an attribute of this name to, of whatever has one."""
    return [
        (module, node.value)
        for module in roles.project.modules
        for node in module.walk(module.tree, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == name and unparse(target.value) != "self"
    ]
