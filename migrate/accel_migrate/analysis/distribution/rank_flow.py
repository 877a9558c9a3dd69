"""Where the rank goes: which values differ from process to process, and which code not every process runs.

A call in which all processes meet must not stand where only some of them come by. So whatever may depend on the rank
counts as depending on it: a variable, a parameter two calls down, an attribute of the options, what is set under a guard.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from accel_migrate.analysis.distribution.ranks import MAIN_NAME, environment_reads, rank_option
from accel_migrate.analysis.values.imported import importers_of
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import arguments_of
from accel_migrate.flow.nodes import called_name, conjuncts, parts_of_value, positional_parameters, unparse
from accel_migrate.flow.scopes import Binding, Function, Module, Variable
from accel_migrate.flow.sequence import may_follow

_ASKED = {"torch.distributed.get_rank", "torch.distributed.get_node_local_rank"}
_ASKED_OF_OTHERS = re.compile(r"(^|_)(get_)?(local_|global_|node_)?rank$|^is_rank")
_READ = {"process_index", "local_process_index", "is_main_process", "is_local_main_process", "is_last_process"}
_RANK_VARIABLE = re.compile(r"RANK$|PROCID$|LOCALID$|^PMI_RANK|_RANK_")
_ONE_PROCESS = re.compile(r"(rank_?(zero|0)|master|main(_process)?)_only|only_on_(main|master|rank)|on_main_process")
_PASSES_ON = {"int", "bool", "str", "float", "abs", "min", "max", "any", "all", "getattr", "divmod"}
_SPAWNS = {"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"}
_TOLD = {"rank": "rank", "local_rank": "rank"}


class RankFlow:
    """Settled once for all files of a project."""

    def __init__(self, graph: CallGraph) -> None:
        self.roles = graph.roles
        self.graph = graph
        self.modules = graph.roles.project.modules
        self.numbers: set[Variable] = set()  # hold a rank, or what is computed from one
        # set by some processes only, or to another value there: by which statements; None: handed in
        self.chosen: dict[Variable, set[ast.stmt | None]] = {}
        # of any object, with the files that set them; whether by choice
        self.attributes: dict[str, dict[Module, bool]] = {}
        self._starters: dict[Module, set[Module]] = {}
        self.asking: dict[
            Function, set[int | None]
        ] = {}  # functions whose result depends on it; None: the whole result
        self.sites_of_some: set[Function] = set()  # functions that not every process calls
        self._imports_by_name = any(
            b"import_module" in m.source.data or b"__import__" in m.source.data for m in self.modules
        )
        self._reads: set[ast.expr] = set()
        # The current GPU tells the processes apart only where each chose its own.
        chosen = any(module.calls_of(("torch.cuda.set_device",)) for module in self.modules)
        self._asked_for = _ASKED | ({"torch.cuda.current_device"} if chosen else set())
        self._owner = {function: module for module in self.modules for function in module.functions}
        bound = [(module, binding) for module in self.modules for _, binding in module.bound()]
        self._bindings = [(m, b.target, b) for m, b in bound if isinstance(b.target, ast.Name | ast.Attribute)]
        self._tests: dict[ast.AST, bool] = {}
        self._left: dict[ast.stmt, ast.stmt | None] = {}
        self._asked = [(module, test) for module in self.modules for test in _tests_in(module)]
        self._guards = False  # whether any test depends on the rank; if none does, nothing is guarded
        self._start()
        self._settle()

    # ---- questions

    def depends(self, module: Module, node: ast.expr, by_choice: bool = False) -> bool:
        """Whether an expression may have another value on another process; `by_choice`: whether some have none at all."""
        match node:
            case ast.Name() | ast.Attribute():
                return self._holds(module, node, by_choice)
            case ast.Compare():
                return self._compares(module, node)
            case ast.IfExp():
                return self.depends(module, node.test) or any(
                    self.depends(module, part, by_choice) for part in (node.body, node.orelse)
                )
            case ast.BoolOp() | ast.BinOp() | ast.UnaryOp() | ast.NamedExpr():
                return any(self.depends(module, part, by_choice) for part in parts_of_value(node))
            case ast.Subscript():
                return (node in self._reads and not by_choice) or any(
                    self.depends(module, part, by_choice) for part in (node.value, node.slice)
                )
            case ast.Call():
                return self._result(module, node, None) if by_choice else self._asks(module, node)
        return False

    def guard(self, module: Module, node: ast.AST) -> ast.stmt | None:
        """The outermost statement of a node's function that keeps some processes from it."""
        if not self._guards:
            return None
        found: ast.stmt | None = None
        inner = node
        for parent in module.ancestors(node):
            if isinstance(inner, ast.stmt):
                found = self._left_before(module, inner) or found
            if self._keeps_out(module, parent, inner):
                found = module.statement(parent)
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                break
            inner = parent
        return found

    def some_call(self, function: Function | None) -> bool:
        """Whether only some processes run a function, at least at one of its calls."""
        return function is not None and function in self.sites_of_some

    def only_some(self, module: Module, node: ast.AST) -> bool:
        """Whether only some processes ever come by a node, whoever calls its function."""
        return self.guard(module, node) is not None or self._all_calls(module, node, self.on_some)

    def on_some(self, module: Module, node: ast.AST) -> bool:
        """Whether only some processes come by a node."""
        return self.guard(module, node) is not None or self.some_call(module.scope(node).function)

    def only_main(self, module: Module, node: ast.AST) -> bool:
        """Whether a condition on the rank decides who comes by, and can not let all processes by: `any or rank == 0` can."""
        guard = self.guard(module, node)
        if isinstance(guard, ast.If) and not module.holds(guard.test, node):
            return not (_is_either(guard.test) and self.picks_main(module, guard.test))
        return guard is not None or self._all_calls(module, node, self.only_main)

    def _all_calls(self, module: Module, node: ast.AST, holds: Callable[[Module, ast.AST], bool]) -> bool:
        """Whether something holds of every call of the function around a node, which not every process calls."""
        function = module.scope(node).function
        if function is None or not self.some_call(function):
            return False
        sites = self.graph.all_sites.get(function, [])
        return _is_for_one(function) or (bool(sites) and all(holds(*site) for site in sites))

    def picks_main(self, module: Module, test: ast.expr, depth: int = 0) -> bool:
        """Whether a condition holds on the main process: `rank == 0`, alone or among others."""
        if depth > 6:
            return False
        match test:
            case ast.BoolOp():
                return any(self.picks_main(module, part, depth + 1) for part in test.values)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                return (_is_zero(right) and self.depends(module, left)) or (
                    _is_zero(left) and self.depends(module, right)
                )
            case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.List() | ast.Tuple() | ast.Set() as several]):
                return any(_is_zero(one) for one in several.elts) and self.depends(module, left)
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name() | ast.Attribute() as rank):
                variable = module.variable(rank)
                return variable in self.numbers and not self._picked(module, rank, depth)
            case ast.Name() | ast.Attribute():
                return self._picked(module, test, depth)
        return False

    def _picked(self, module: Module, node: ast.Name | ast.Attribute, depth: int) -> bool:
        """What a variable holds."""
        values = [b.value for b in module.bindings_of(node) if b.kind == "assign"]
        if not values:
            return bool(MAIN_NAME.search(unparse(node)))
        return all(value is not None and self.picks_main(module, value, depth + 1) for value in values)

    # ---- where it comes from

    def _start(self) -> None:
        for module in self.modules:
            self._reads |= {read for read, name in environment_reads(module) if _RANK_VARIABLE.search(name)}
            for call in module.calls:
                dotted = module.full_name(call.func)
                option = rank_option(call)
                if option is not None:
                    self.attributes.setdefault(option.lstrip("-").replace("-", "_"), {}).setdefault(module, False)
                if dotted in _SPAWNS and call.args:
                    self._spawned(module, call.args[0])
                if dotted.startswith("torch."):
                    self._told(module, call, dotted.rpartition(".")[2])

    def _spawned(self, module: Module, node: ast.expr) -> None:
        """mp.spawn hands the number of the process over first."""
        target = self.roles.project.definition(module, node)
        if target is not None and not isinstance(target.node, ast.ClassDef):
            first = positional_parameters(target.node)[:1]
            self.numbers |= {Variable(target.scope, argument.arg) for argument in first}

    def _told(self, module: Module, call: ast.Call, name: str) -> None:
        """What init_process_group, a sampler or set_device is told to be the rank is one."""
        said = [k.value for k in call.keywords if k.arg in _TOLD]
        if name == "set_device":
            said += call.args[:1]
        for value in said:
            if isinstance(value, ast.Name | ast.Attribute):
                self._mark(module, value)

    # ---- how it goes on

    def _settle(self) -> None:
        for _ in range(12):
            before = self._size()
            self._tests.clear()
            self._left.clear()
            self._guards = any(self._test(module, test) for module, test in self._asked)
            for module, target, binding in self._bindings:
                self._bound(module, target, binding)
            for module in self.modules:
                for call in module.calls:
                    self._called(module, call)
                for function in module.functions:
                    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                        self._returned(module, function)
            if self._size() == before:
                return
        self._guards = True  # not settled: whatever may be guarded counts

    def _size(self) -> tuple[int, ...]:
        results = sum(len(parts) for parts in self.asking.values())
        attributes = [by_choice for files in self.attributes.values() for by_choice in files.values()]
        chosen = sum(attributes) + sum(map(len, self.chosen.values()))
        return len(self.numbers), len(attributes), chosen, results, len(self.sites_of_some)

    def _bound(self, module: Module, target: ast.expr, binding: Binding) -> None:
        if binding.kind in ("assign", "augment") and binding.value is not None:
            part = binding.path[0] if binding.path else None
            if isinstance(binding.value, ast.Call) and self._result(module, binding.value, part):
                self._mark(module, target)
            elif part is None and self.depends(module, binding.value):
                by_choice = self._is_choice(module, binding.value)
                self._mark(module, target, binding.statement if by_choice else None)
        guarded = binding.kind != "definition" and self.guard(module, binding.statement) is not None
        outlives = isinstance(target, ast.Attribute) and self.some_call(module.scope(binding.statement).function)
        if guarded or outlives:
            self._mark(module, target, binding.statement)

    def _is_choice(self, module: Module, value: ast.expr) -> bool:
        """Whether some processes may get None, or nothing at all."""
        return self.depends(module, value, by_choice=True)

    def _mark(self, module: Module, target: ast.expr, chosen: ast.stmt | None = None) -> None:
        """The target holds a rank; or, with the statement that chooses, another value on other processes."""
        variable = module.variable(target)
        if variable is not None and chosen is None:
            self.numbers.add(variable)
        elif variable is not None:
            self.chosen.setdefault(variable, set()).add(chosen)
        if isinstance(target, ast.Attribute):
            files = self.attributes.setdefault(target.attr, {})
            files[module] = files.get(module, False) or chosen is not None

    def _called(self, module: Module, call: ast.Call) -> None:
        target = self.roles.target(module, call)
        if target is None:
            return
        if isinstance(target.node, ast.ClassDef):
            constructor = self.roles.project.method(target, "__init__")
            if constructor is None or isinstance(constructor.node, ast.ClassDef):
                return
            target = constructor
        assert not isinstance(target.node, ast.ClassDef)
        if self.on_some(module, call) or _is_for_one(target.node):
            self.sites_of_some.add(target.node)
        for name, argument in arguments_of(call, target):
            if self.depends(module, argument):
                parameter = Variable(target.scope, name)
                if self._is_choice(module, argument):
                    self.chosen.setdefault(parameter, set()).add(None)
                else:
                    self.numbers.add(parameter)

    def _returned(self, module: Module, function: Function) -> None:
        for value in module.returned(function):
            parts = value.elts if isinstance(value, ast.Tuple) else []
            found: set[int | None] = {i for i, part in enumerate(parts) if self.depends(module, part)}
            if not parts and (self.depends(module, value) or self.guard(module, module.statement(value)) is not None):
                found.add(None)
            if found:
                self.asking.setdefault(function, set()).update(found)

    # ---- expressions

    def _holds(self, module: Module, node: ast.Name | ast.Attribute, by_choice: bool) -> bool:
        variable = module.variable(node)
        if any(_may_reach(module, chosen, node) for chosen in self.chosen.get(variable, ())):  # type: ignore[arg-type]
            return True
        files = self.attributes.get(node.attr, {}) if isinstance(node, ast.Attribute) else {}
        set_by = [chosen for file, chosen in files.items() if file is module or self._run_together(file, module)]
        if any(set_by):
            return True
        if by_choice:
            return False
        if set_by or (isinstance(node, ast.Attribute) and node.attr in _READ):
            return True
        unknown = variable is None or not module.bindings(variable)
        return (variable is not None and variable in self.numbers) or (
            unknown and bool(MAIN_NAME.search(unparse(node)))
        )

    def _run_together(self, *files: Module) -> bool:
        """Whether a run may load both files, so that one sees objects of the other: two scripts of a folder do not."""
        for file in files:
            if file not in self._starters:
                self._starters[file] = {file, *importers_of(self.roles.project, file)}
        return self._imports_by_name or not set.isdisjoint(*[self._starters[file] for file in files])

    def _compares(self, module: Module, node: ast.Compare) -> bool:
        parts = [node.left, *node.comparators]
        asks_whether = any(_is_none_or_minus_one(part) for part in parts) or (
            isinstance(node.ops[0], ast.GtE | ast.Lt) and _is_zero(node.comparators[0])
        )
        # `rank is not None`, `rank != -1`, `rank >= 0`: whether there are several, which all answer alike.
        return any(self.depends(module, part, by_choice=asks_whether) for part in parts)

    def _asks(self, module: Module, call: ast.Call) -> bool:
        if call in self._reads or module.qualified(call.func) in self._asked_for:
            return True
        if self._result(module, call, None):
            return True
        name = called_name(call)
        if self.roles.target(module, call) is None and (_ASKED_OF_OTHERS.search(name) or MAIN_NAME.search(name)):
            return True
        passes = isinstance(call.func, ast.Name) and name in _PASSES_ON
        return passes and any(self.depends(module, argument) for argument in call.args)

    def _result(self, module: Module, call: ast.Call, part: int | None) -> bool:
        target = self.roles.function(module, call)
        if target is None:
            return False
        return part in self.asking.get(target.node, ())

    # ---- statements

    def _keeps_out(self, module: Module, parent: ast.AST, inner: ast.AST) -> bool:
        if isinstance(parent, ast.If | ast.While | ast.IfExp):
            return inner is not parent.test and self._test(module, parent.test)
        if isinstance(parent, ast.BoolOp) and inner in parent.values:
            asked_before = parent.values[: parent.values.index(inner)]
            return any(self._test(module, part) for part in asked_before)
        return False

    def _left_before(self, module: Module, statement: ast.stmt) -> ast.stmt | None:
        """An earlier statement of the same block in which some processes leave: `if rank != 0: return`."""
        if statement not in self._left:
            self._left[statement] = self._find_left(module, statement)
        return self._left[statement]

    def _find_left(self, module: Module, statement: ast.stmt) -> ast.stmt | None:
        parent = module.parents[statement]
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and statement in block:
                for earlier in block[: block.index(statement)]:
                    if isinstance(earlier, ast.If) and self._test(module, earlier.test) and _leaves(module, earlier):
                        return earlier
        return None

    def _test(self, module: Module, test: ast.expr) -> bool:
        if test not in self._tests:
            self._tests[test] = self.depends(module, test)
        return self._tests[test]


def _tests_in(module: Module) -> Iterable[ast.expr]:
    """Every expression whose outcome may keep a process from what stands beside or below it."""
    for node in module.walk(module.tree, ast.If, ast.While, ast.IfExp, ast.BoolOp):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            yield from node.values[:-1]


def _is_either(test: ast.expr) -> bool:
    return any(isinstance(part, ast.BoolOp) and isinstance(part.op, ast.Or) for part in conjuncts(test))


def _leaves(module: Module, statement: ast.If) -> bool:
    for node in module.walk(statement):
        if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return True
        if isinstance(node, ast.Call) and module.qualified(node.func) in ("sys.exit", "os._exit"):
            return True
    return False


def _may_reach(module: Module, chosen: ast.stmt | None, read: ast.expr) -> bool:
    """Whether what a statement sets may be read there: it runs earlier, again in a loop around both, or elsewhere."""
    if chosen is None or chosen not in module.parents:
        return True
    return chosen is module.statement(read) or may_follow(module, chosen, read)


def _is_for_one(function: Function) -> bool:
    """Whether a decorator lets one process alone run a function."""
    return any(_ONE_PROCESS.search(unparse(decorator)) for decorator in function.decorator_list)


def _is_none_or_minus_one(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.UnaryOp) and unparse(node) == "-1"


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and node.value is not False
