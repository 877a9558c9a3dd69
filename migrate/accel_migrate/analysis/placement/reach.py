"""How the Accelerator gets to every function that needs it: by its name, as an attribute, or handed over."""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass, field, replace

from accel_migrate.analysis.moves.devices import is_device
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Role, Roles, arguments_of
from accel_migrate.flow.main_guard import under_main
from accel_migrate.flow.nodes import positional_parameters, unparse
from accel_migrate.flow.program import Definition, default_of
from accel_migrate.flow.scopes import Function, Module, Scope, Variable

NAME = "accelerator"
_Call = tuple[Function | None, ast.AST]  # what is called, and where
_Place = tuple[Module, ast.AST]


@dataclass(frozen=True, eq=False)
class NewParameter:
    """A function that is handed the Accelerator: in place of its device or scaler, or behind its last parameter."""

    module: Module
    function: Function
    device: str | None
    scaler: str | None = None  # looked at only where there is no device

    @property
    def replaced(self) -> str | None:
        """The parameter whose place it takes."""
        return self.device or self.scaler


@dataclass(frozen=True, eq=False)
class Reach:
    """How each function spells the Accelerator; None stands for module level."""

    creation: Scope
    by_class: Scope | None
    family: frozenset[Scope] = frozenset()  # classes whose objects have it as an attribute
    parameters: dict[Function, NewParameter] = field(default_factory=dict)
    everywhere: Module | None = None  # the module whose functions see it as a global
    guarded: bool = False  # made under `if __name__ == "__main__":`, so functions are handed it

    def spelled(self, module: Module, node: ast.AST) -> str | None:
        """The expression for the Accelerator at a node; None where it cannot be had."""
        scope: Scope | None = module.scope(node)
        while scope is not None:
            if scope.owner_class in self.family and scope.instance and not self._is_set_up_earlier(scope):
                return f"{scope.instance}.{NAME}"
            if scope.is_function and scope.node in self.parameters:
                return NAME
            if scope is self.creation and not scope.is_class and (not self.guarded or _sees_guarded(module, node)):
                return NAME
            scope = scope.parent
        return NAME if self.everywhere is module else None

    def taken_over(self, graph: CallGraph) -> set[ast.expr]:
        """The arguments of calls in whose place the Accelerator is handed over."""
        return {
            argument
            for function, parameter in self.parameters.items()
            for _, call in graph.sites.get(function, ())
            for name, argument in arguments_of(call, Definition(parameter.module, function))
            if name == parameter.replaced
        }

    def _is_set_up_earlier(self, scope: Scope) -> bool:
        """Whether a scope is the `__init__` of a base class, which runs before that of the class that makes it."""
        function = scope.function
        return scope.owner_class is not self.by_class and function is not None and function.name == "__init__"


def _sees_guarded(module: Module, node: ast.AST) -> bool:
    """Whether a node stands under the main guard, or in a function that already reads what is built there."""
    if under_main(module, node):
        return True
    function = module.scope(node).function
    names = {n.id for n in module.walk(function or node, ast.Name) if isinstance(n.ctx, ast.Load)}
    own = module.functions[function].bindings if function is not None else {}
    built = [module.root.bindings[name] for name in names if name in module.root.bindings and name not in own]
    return any(all(b.kind == "assign" and under_main(module, b.statement) for b in bindings) for bindings in built)


@dataclass(frozen=True, eq=False)
class ReachFinder:
    """Hands the Accelerator down from where it is made."""

    roles: Roles
    graph: CallGraph
    wished: CallGraph  # also the calls of other scripts
    keep_device: bool
    scalers: dict[Function, tuple[Module, str]]
    gone: frozenset[ast.AST]  # what nothing reads: a parameter that only told moves their device

    def reach(
        self, creation: Scope, by_class: Scope | None, guarded: bool, needs: list[_Place], wishes: list[_Place]
    ) -> Reach:
        """The Accelerator for all that need it, and where possible for those that wish it.

        Who wishes it gets it only if every call that is visible can hand it over.
        """
        everywhere = creation.module if creation.parent is None and by_class is None and not guarded else None
        family = self.roles.project.family(by_class) if by_class is not None else frozenset[Scope]()
        reach = Reach(creation, by_class, family, {}, everywhere, guarded)
        for module, node in needs:
            reach = self._extended(self.graph, reach, module, node)
        for module, node in wishes:
            with suppress(NotMigrated):
                reach = self._extended(self.wished, reach, module, node)
        return reach

    def _extended(self, graph: CallGraph, reach: Reach, module: Module, node: ast.AST) -> Reach:
        """The reach with one more place, and with all callers on the way to it."""
        parameters = dict(reach.parameters)
        extended = replace(reach, parameters=parameters)
        # Each with the function that is called there, and the call by which one file runs what is in another.
        pending: list[tuple[Module, ast.AST, Function | None, _Call]] = [(module, node, None, (None, node))]
        while pending:
            module, node, called, entry = pending.pop()
            function = module.scope(node).function
            device = self._device(graph, module, function)
            if extended.spelled(module, node) is not None and (
                device is None
                or function in parameters
                or extended.by_class is not None
                or self._is_read(graph, parameters, module, function, device)
            ):
                continue
            if function is extended.creation.node:
                continue
            if function is None:
                far = (called, node) if module is extended.creation.module else entry
                raise _unnamed(self.roles, extended, called) or _too_far_out(extended, module, *far)
            sites = graph.sites.get(function, [])
            if not sites:
                raise NotMigrated(_not_called(self.roles, module, function), (module, function))
            _check_references(self.roles, function, graph.all_sites[function])
            _, scaler = self.scalers.get(function, (module, None))
            if scaler is not None and default_of(function, scaler) is not None:
                scaler = None  # with a default it may be left out of a call, and the Accelerator may not
            parameters[function] = NewParameter(module, function, device, scaler)
            pending += [
                (caller, call, function, entry if caller is module else (function, call)) for caller, call in sites
            ]
        return extended

    def _device(self, graph: CallGraph, module: Module, function: Function | None) -> str | None:
        """The parameter that holds the device, if every caller hands over the training's device for it."""
        if function is None or self.keep_device:
            return None
        scope = module.functions[function]
        positional = positional_parameters(function)
        plain = len(positional) - len(function.args.defaults)
        # Behind a parameter with a default, one without cannot stand.
        for argument in (*positional[: plain + 1], *function.args.kwonlyargs):
            variable = Variable(scope, argument.arg)
            if self.roles.of(variable) == Role.DEVICE and len(module.bindings(variable)) == 1:
                if all(is_device(self.roles, caller, value) for caller, value in graph.handed(variable)):
                    return argument.arg
        return None

    def _is_read(
        self,
        graph: CallGraph,
        taking: dict[Function, NewParameter],
        module: Module,
        function: Function | None,
        device: str,
    ) -> bool:
        """Whether a function goes on reading its device, and not only to hand it to one that takes the Accelerator instead."""
        handed = {
            value
            for inner, taken in taking.items()
            if taken.device is not None
            for _, value in graph.handed(Variable(taken.module.functions[inner], taken.device))
        }
        return any(
            node.id == device and node not in self.gone and node not in handed
            for statement in (function.body if function is not None else ())
            for node in module.walk(statement, ast.Name)
        )


def creation_scope(graph: CallGraph, home: Scope, needs: list[tuple[Module, ast.AST]]) -> Scope:
    """Where the Accelerator is made: at home, or in the nearest caller of it that also calls all else that needs it.

    That may be the script itself, which calls what trains and then what evaluates.
    """
    functions = {function for module, node in needs if (function := module.scope(node).function) is not None}
    for function in functions - {home.function}:
        functions = functions | {f for m, c in graph.sites.get(function, ()) if (f := m.scope(c).function) is not None}
    scope = home
    for _ in range(5):
        function = scope.function
        if function is None or scope.is_class:
            return home
        if functions <= graph.reached_from(function, scope.module) | {function}:
            return scope
        callers = {caller.scope(call).function: caller for caller, call in graph.sites.get(function, ())}
        if len(callers) != 1:
            return home
        ((caller, module),) = callers.items()
        if caller is None:
            return module.root if functions <= graph.reached_from(module.tree, module) else home
        scope = module.functions[caller]
    return home


def is_idle(graph: CallGraph, module: Module, node: ast.AST) -> bool:
    """Whether a node stands in a plain function that no file given calls or names: it may stay as it is."""
    function = module.scope(node).function
    if function is None or graph.all_sites.get(function) or module.functions[function].parent is not module.root:
        return False
    return not any(
        _names(graph.roles, other, node, function)
        for other in graph.roles.project.modules
        for node in other.walk(other.tree, ast.Name, ast.Attribute)
    )


def _names(roles: Roles, module: Module, node: ast.AST, function: Function, is_method: bool = False) -> bool:
    """Whether a name that is read may mean a function."""
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return False
    if function.name != (node.id if isinstance(node, ast.Name) else node.attr):
        return False
    target = roles.project.definition(module, node)
    return target.node is function if target is not None else is_method or not _is_of_an_object(module, node)


def _is_of_an_object(module: Module, node: ast.expr) -> bool:
    """Whether a name begins with what the file binds itself, so that it leads into no file: `net.train`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    variable = module.variable(node)
    bindings = module.bindings(variable) if variable is not None else []
    return bool(bindings) and all(binding.kind not in ("import", "definition") for binding in bindings)


def _not_called(roles: Roles, module: Module, function: Function) -> str:
    """Why no call can hand a function the Accelerator."""
    owner = module.functions[function].parent
    is_method = owner is not None and owner.is_class
    if owner is not None and is_method:
        for base in roles.project.all_bases(Definition(module, owner.node)):  # type: ignore[arg-type]
            if any(getattr(statement, "name", "") == function.name for statement in base.node.body):
                return (
                    f"{function.name}() needs the Accelerator, and {base.node.name} calls it for all that are derived "
                    "from it"
                )
    for other in roles.project.modules:
        for node in other.walk(other.tree, ast.Name, ast.Attribute):
            if _names(roles, other, node, function, is_method):
                called = getattr(other.parents[node], "func", None) is node
                use = "called on what is not known to be an object of its class" if called else "handed on as a value"
                value = f"is {use} ({other.source.path.name}:{node.lineno})"
                return f"{function.name}() needs the Accelerator and {value}, so who calls it is not visible to the analysis"
    return f"{function.name}() needs the Accelerator, and nothing in the files given calls it"


def _unnamed(roles: Roles, reach: Reach, called: Function | None) -> NotMigrated | None:
    """`Trainer(...).train()` where the Accelerator is the trainer's: nobody can ask it for that afterwards."""
    if called is None or reach.by_class is None:
        return None
    for module, call in roles.project.calls:
        target = roles.target(module, call)
        if target is None or target.node is not reach.by_class.node or module.scope(call).function is not called:
            continue
        if isinstance(module.parents[call], ast.Attribute):
            made = unparse(call.func)
            reason = (
                f"{called.name}() needs the Accelerator, which {made} makes, and the {made} has no name to ask it by; "
                f"give it one, as in `trainer = {made}(...)`"
            )
            return NotMigrated(reason, (module, call))
    return None


def _too_far_out(reach: Reach, module: Module, called: Function | None, node: ast.AST) -> NotMigrated:
    """Why code outside of all functions, that of another script perhaps, cannot have the Accelerator."""
    line, home, function = getattr(node, "lineno", 1), reach.creation.module, module.scope(node).function
    what = f"{called.name}() needs the Accelerator and is called" if called is not None else "the Accelerator is needed"
    here = f"in {function.name}()" if function is not None else "outside of all functions"
    made = f"in {name}()" if (name := getattr(reach.creation.node, "name", "")) else f"in {home.source.path.name}"
    if module is not home:
        here, made = f"{here} of {module.source.path.name}", f"{made} of {home.source.path.name}" if name else made
    return NotMigrated(f"{what} {here} (line {line}), where there is none: it is made {made}", (module, line))


def _check_references(roles: Roles, function: Function, sites: list[tuple[Module, ast.Call]]) -> None:
    called = {call.func for _, call in sites}
    for other in roles.project.modules:
        for node in other.walk(other.tree, ast.Name):
            if node.id == function.name and isinstance(node.ctx, ast.Load) and node not in called:
                target = roles.project.definition(other, node)
                if target is not None and target.node is function:
                    raise NotMigrated(
                        f"{function.name}() is handed on as a value, so its parameters must stay", (other, node)
                    )
    for caller, call in sites:
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            raise NotMigrated(f"{function.name}() is called with unpacked arguments", (caller, call))
