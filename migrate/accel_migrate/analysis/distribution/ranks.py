"""Who am I, and how many are we: reads of rank and world size, and the conditions that are made of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accel_migrate.analysis.distribution.replacements import ACCELERATOR, Replacement
from accel_migrate.analysis.values.provenance import NotMigrated
from accel_migrate.analysis.values.roles import Roles, arguments_of
from accel_migrate.flow.nodes import calls_method, conjuncts, is_call_of, unparse, walk
from accel_migrate.flow.points import never_returns
from accel_migrate.flow.scopes import Module, Variable
from accel_migrate.flow.sequence import follows

CODE = "AM704"
_BY_VARIABLE = {"RANK": "process_index", "LOCAL_RANK": "local_process_index", "WORLD_SIZE": "num_processes"}
# Those of other launchers, which the runtime reads as well.
_BY_ANOTHER = {
    "SLURM_PROCID": "process_index",
    "SLURM_LOCALID": "local_process_index",
    "SLURM_NTASKS": "num_processes",
    "OMPI_COMM_WORLD_RANK": "process_index",
    "OMPI_COMM_WORLD_LOCAL_RANK": "local_process_index",
    "OMPI_COMM_WORLD_SIZE": "num_processes",
}
_BY_CALL = {"torch.distributed.get_rank": "process_index", "torch.distributed.get_world_size": "num_processes"}
_COUNT = "torch.cuda.device_count"
_MAIN = {"process_index": "is_main_process", "local_process_index": "is_local_main_process"}
_OTHER_LAUNCHERS = re.compile(r"(SLURM|OMPI|PMI)_(?!JOB|NNODES|CPUS|GPUS|MEM|ARRAY|SUBMIT|CLUSTER)")
_MACHINES = re.compile(r"SLURM_(NNODES|JOB_NUM_NODES|GPUS)")
MAIN_NAME = re.compile(r"(^|[._])(is_(master|main|root|rank_?(0|zero))(_process|_proc)?|(master|main)_process)$")


class Ranks:
    """Finds every read in a file, and follows the variables that hold one."""

    def __init__(self, roles: Roles, modules: list[Module], for_accelerate: bool = False) -> None:
        self.roles = roles
        self.for_accelerate = for_accelerate  # which knows of fewer launchers
        self.held: dict[Variable, str] = {}  # attribute of the Accelerator, by variable
        options = (rank_option(call) for module in modules for call in module.calls)  # that a launcher of old filled in
        self.options = {option.lstrip("-").replace("-", "_") for option in options if option is not None}
        for module in modules:
            for call in module.calls:
                self._hold(module, call, _BY_CALL.get(module.full_name(call.func)))
            for read, name in environment_reads(module):
                self._hold(module, _as_number(module, read), self._told_by(module, read, name))
        self.pass_on()
        numbers = [(module, number) for module in modules for number in self._numbers_of_gpus(module)]
        for module, number in numbers:
            self._hold(module, number, "local_process_index")
        if numbers:
            self.pass_on()

    def _hold(self, module: Module, read: ast.expr, attribute: str | None) -> None:
        statement = module.parents.get(read)
        if attribute is not None and isinstance(statement, ast.Assign) and statement.value is read:
            for target in statement.targets:
                variable = module.variable(target)
                if variable is not None:
                    self.held[variable] = attribute
        elif attribute is not None and isinstance(statement, ast.Tuple):
            assign = module.parents[statement]
            if isinstance(assign, ast.Assign) and isinstance(assign.targets[0], ast.Tuple):
                variable = module.variable(assign.targets[0].elts[statement.elts.index(read)])
                if variable is not None:
                    self.held[variable] = attribute

    def hold(self, told: dict[Variable, str]) -> None:
        """Take what variables are said to hold, and what they hand on."""
        self.held |= told
        self.pass_on()

    def pass_on(self) -> None:
        """Parameters hold what every caller hands over."""
        for module, call in self.roles.project.calls:
            target = self.roles.function(module, call)
            if target is None:
                continue
            for name, argument in arguments_of(call, target):
                attribute = self.attribute(module, argument)
                if attribute is not None:
                    self.held.setdefault(Variable(target.scope, name), attribute)

    def attribute(self, module: Module, node: ast.expr) -> str | None:
        """The attribute of the Accelerator that an expression stands for."""
        if isinstance(node, ast.Call):
            return _BY_CALL.get(module.full_name(node.func))
        variable = module.variable(node)
        if variable is None:
            return None
        if isinstance(node, ast.Attribute) and node.attr in self.options:
            return "local_process_index"
        return self.held.get(variable)

    def _numbers_of_gpus(self, module: Module) -> Iterator[ast.BinOp]:
        """`rank % torch.cuda.device_count()`: the process by its number on its machine."""
        for node in module.walk(module.tree, ast.BinOp):
            if isinstance(node.op, ast.Mod):
                if _counts_gpus(module, node.right) and self.attribute(module, node.left) == "process_index":
                    yield node

    def _told_by(self, module: Module, read: ast.expr, name: str) -> str | None:
        """The attribute of the Accelerator that says what a variable of the environment does.

        That of another launcher only where the script asks for RANK on another way: then it sets no meeting place of its own.
        """
        if name in _BY_VARIABLE or self.for_accelerate or name not in _BY_ANOTHER:
            return _BY_VARIABLE.get(name)
        ways = [node for node in module.ancestors(read) if isinstance(node, ast.If)]
        asks = any(_is_presence(module, test) for way in ways for test in module.walk(way, ast.Compare))
        reads = {other for other, said in environment_reads(module) if said in _BY_VARIABLE}
        return _BY_ANOTHER[name] if asks or any(not reads.isdisjoint(module.walk(way)) for way in ways) else None

    # ---- replacements

    def replacements(self, module: Module) -> Iterator[Replacement]:
        for read, name in environment_reads(module):
            told = self._told_by(module, read, name)
            if _OTHER_LAUNCHERS.match(name) and told is None:
                raise NotMigrated(
                    f"the rank is read from {name}; start with `accel launch` or torchrun and read it from RANK first",
                    (module, read),
                )
            if _MACHINES.match(name) and _is_reckoned_with(module, read):
                raise NotMigrated(
                    f"the number of processes is made of {name}; start with `accel launch` or torchrun and read it from "
                    "WORLD_SIZE first",
                    (module, read),
                )
            # As the default of `--local_rank` it is read when there is one, and harmless when there is not.
            in_option = any(calls_method(parent, "add_argument") for parent in module.ancestors(read))
            if told is not None and not in_option:
                yield self._read(module, read, told)
        for number in self._numbers_of_gpus(module):
            yield self._read(module, number, "local_process_index")
        for test in module.walk(module.tree, ast.Compare):
            if not _is_presence(module, test):
                continue
            above, is_there = module.parents[test], isinstance(test.ops[0], ast.In)
            together = isinstance(above, ast.BoolOp) and all(_is_presence(module, part) for part in above.values)
            yield _whether_launched(module, above if together else test, is_there)  # type: ignore[arg-type]
        for call in module.calls:
            attribute = _BY_CALL.get(module.full_name(call.func))
            if attribute is not None and not is_guarded(module, call):
                if call.args or call.keywords:
                    raise NotMigrated("processes are split into groups", (module, call))
                yield self._read(module, call, attribute)
        for node in module.walk(module.tree, ast.Attribute, ast.Name):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in self.options:
                if module.variable(node) is not None:
                    yield self._read(module, node, "local_process_index")
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                attribute = self.held.get(module.variable(node))  # type: ignore[arg-type]
                parent = module.parents[node]
                if attribute in _MAIN and _compared(module, node) is not None:
                    yield self._read(module, node, attribute, optional=True)
                elif attribute in _MAIN and isinstance(parent, ast.keyword) and parent.arg == "device":
                    yield self._read(module, node, attribute)

    def _read(self, module: Module, read: ast.expr, attribute: str, optional: bool = False) -> Replacement:
        whole = _as_number(module, read)
        compared = _compared(module, whole)
        if compared is not None:
            test, equal, number = compared
            if number == 0 and attribute in _MAIN:
                text = f"{ACCELERATOR}.{_MAIN[attribute]}"
                return Replacement(
                    CODE, module, test, text if equal else f"not {text}", "one process is the main one", optional
                )
            if number == -1:
                return _whether_launched(module, test, not equal, optional)
        named = module.parents[whole]
        if attribute in _MAIN and isinstance(named, ast.keyword) and named.arg == "device":
            told = "the number of a process is no device"
            return Replacement(CODE, module, whole, f"{ACCELERATOR}.device", told, optional)
        asked = f"{ACCELERATOR}.{attribute}"
        text = f"str({asked})" if _is_text(module, whole) else asked
        return Replacement(CODE, module, whole, text, "asks the Accelerator", optional)

    def main_only(self, module: Module) -> set[ast.If | ast.IfExp]:
        """Conditions whose bodies only the main process enters."""
        return {
            node
            for node in module.walk(module.tree, ast.If, ast.IfExp)
            if any(self._is_main(module, part) for part in conjuncts(node.test))
        }

    def _is_main(self, module: Module, test: ast.expr) -> bool:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
            return any(self._is_main(module, part) for part in test.values)  # `not distributed or rank == 0`
        if isinstance(test, ast.Compare):
            compared = _compared(module, test.left)
            attribute = self.attribute(module, test.left)
            if compared is not None and compared[0] is test and attribute in _MAIN:
                return compared[1] and compared[2] in (0, None)
            reads = any(isinstance(n, ast.Constant) and n.value in ("RANK", "LOCAL_RANK") for n in walk(test.left))
            return compared is not None and compared[1] and compared[2] == 0 and reads
        if isinstance(test, ast.Call):
            return bool(MAIN_NAME.search(unparse(test.func)))
        return isinstance(test, ast.Name | ast.Attribute) and bool(MAIN_NAME.search(unparse(test)))


def _whether_launched(module: Module, test: ast.expr, asks_for_it: bool, optional: bool = False) -> Replacement:
    """A question whether a launcher started the script: whether there are several processes.

    Where the script ends without a launcher, the demand goes: on one process that a launcher started it did not end.
    """
    above = module.parents[test]
    statement = module.statement(test)
    ending = statement.orelse if isinstance(statement, ast.If) and asks_for_it else getattr(statement, "body", [])
    if isinstance(statement, ast.Assert) or (isinstance(statement, ast.If) and ending and _ends(ending[-1])):
        alone = above is statement and (isinstance(statement, ast.Assert) == asks_for_it)
        if not alone or (isinstance(statement, ast.If) and statement.orelse):
            first = unparse(statement).splitlines()[0][:60]
            reason = f"`{first}` ends the script where no launcher started it; take that out first"
            raise NotMigrated(reason, (module, test))
        return Replacement(CODE, module, statement, None, "one process needs no launcher")
    demand = _demanded(module, statement) if above is statement else None
    if demand is not None:
        first = unparse(demand).splitlines()[0][:60]
        reason = f"`{first}` ends the script where no launcher started it; take that out first"
        raise NotMigrated(reason, (module, demand))
    more = ">" if asks_for_it else "=="
    return Replacement(CODE, module, test, f"{ACCELERATOR}.num_processes {more} 1", "asks the Accelerator", optional)


def _demanded(module: Module, statement: ast.stmt) -> ast.stmt | None:
    """`assert distributed`, or an `if` that ends the script by it, below `distributed = "RANK" in os.environ`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    answers = [variable for target in targets if (variable := module.variable(target)) is not None]
    for node in module.walk(module.tree, ast.Assert, ast.If):
        read = [module.variable(part) for part in module.walk(node.test) if isinstance(part, ast.Name | ast.Attribute)]
        branches = [node.body, node.orelse] if isinstance(node, ast.If) else []
        ends = isinstance(node, ast.Assert) or any(branch and _ends(branch[-1]) for branch in branches)
        if ends and any(variable in answers for variable in read):
            return node
    return None


def _ends(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Raise) or (isinstance(statement, ast.Expr) and never_returns(statement.value))


def _counts_gpus(module: Module, node: ast.expr) -> bool:
    """`torch.cuda.device_count()`, also as `max(1, ...)`, for machines that have none."""
    if is_call_of(node, "max"):
        rest = [part for part in node.args if not isinstance(part, ast.Constant)]
        return len(rest) == 1 and not node.keywords and _counts_gpus(module, rest[0])
    return isinstance(node, ast.Call) and module.qualified(node.func) == _COUNT


def environment_reads(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """`os.environ["RANK"]`, `os.environ.get("RANK", ...)`, `os.getenv("RANK")` with the name that is read."""
    for node in module.walk(module.tree, ast.Subscript, ast.Call):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if module.qualified(node.value) == "os.environ" and isinstance(node.slice, ast.Constant):
                yield node, str(node.slice.value)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            if module.qualified(node.func) in ("os.environ.get", "os.getenv"):
                yield node, str(node.args[0].value)


def _is_presence(module: Module, node: ast.expr) -> bool:
    """`"RANK" in os.environ`."""
    return (
        isinstance(node, ast.Compare)
        and len(node.ops) == 1
        and isinstance(node.ops[0], ast.In | ast.NotIn)
        and isinstance(node.left, ast.Constant)
        and node.left.value in _BY_VARIABLE
        and module.qualified(node.comparators[0]) == "os.environ"
    )


def _as_number(module: Module, read: ast.expr) -> ast.expr:
    parent = module.parents[read]
    is_int = is_call_of(parent, "int")
    return parent if is_int and isinstance(parent, ast.expr) else read


def _is_text(module: Module, node: ast.expr) -> bool:
    """Whether a read of the environment is used as the text that it is: no default is a number, and no text is made of it."""
    match node:
        case ast.Subscript():
            pass
        case ast.Call(args=[_, ast.Constant(value=default), *_]) if not isinstance(default, str | None):
            return False
        case ast.Call() if module.qualified(node.func) not in ("os.environ.get", "os.getenv"):
            return False
        case ast.Call():
            pass
        case _:
            return False
    parent = module.parents[node]
    return not (isinstance(parent, ast.FormattedValue) and parent.conversion == -1 and parent.format_spec is None)


def _compared(module: Module, node: ast.expr) -> tuple[ast.Compare, bool, int | None] | None:
    """The comparison with a number, or with `[-1, 0]` (None), that a node is the left side of, and whether for equality."""
    parent = module.parents.get(node)
    if not isinstance(parent, ast.Compare) or parent.left is not node or len(parent.ops) != 1:
        return None
    operator, other = parent.ops[0], parent.comparators[0]
    if isinstance(operator, ast.Eq | ast.NotEq):
        try:
            number = ast.literal_eval(other)
        except (ValueError, SyntaxError):
            return None
        return (parent, isinstance(operator, ast.Eq), number) if isinstance(number, int) else None
    if isinstance(operator, ast.In | ast.NotIn) and unparse(other) in ("[-1, 0]", "(-1, 0)", "{-1, 0}"):
        return parent, isinstance(operator, ast.In), 0
    return None


def _is_reckoned_with(module: Module, read: ast.expr) -> bool:
    """Whether a number is multiplied, in its own statement or by the name that it is given."""
    statement = module.statement(read)
    named = [*statement.targets] if isinstance(statement, ast.Assign) else []
    variables = {variable for name in named if (variable := module.variable(name)) is not None}
    uses = [n for n in module.walk(module.tree, ast.Name, ast.Attribute) if module.variable(n) in variables]
    return any(isinstance(above, ast.BinOp) for use in (read, *uses) for above in module.ancestors(use))


def rank_option(call: ast.Call) -> str | None:
    """The option `--local_rank` that a call adds to a parser."""
    if calls_method(call, "add_argument"):
        for argument in call.args:
            if isinstance(argument, ast.Constant) and argument.value in ("--local_rank", "--local-rank"):
                return str(argument.value)
    return None


_ASKS_WHETHER = re.compile(r"is_initialized|is_dist_avail|is_available\(\)|distributed|use_ddp|world_size")


def is_guarded(module: Module, node: ast.AST) -> bool:
    """Whether a call is only made where processes were joined: these the Accelerator joins too, and it may stay."""
    function = None
    for parent in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and "is_initialized" in unparse(parent.test):
            return True
        if isinstance(parent, ast.BoolOp) and "is_initialized" in unparse(parent.values[0]):
            return True  # `not dist.is_initialized() or dist.get_rank() == 0`
        if isinstance(parent, ast.FunctionDef):
            function = parent
            break
    for statement in function.body if function is not None else ():
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Return):
            if _ASKS_WHETHER.search(unparse(statement.test)) and follows(module, statement, node):
                return True
    return False
