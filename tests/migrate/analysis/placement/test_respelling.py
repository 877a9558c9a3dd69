"""Expressions that are carried to another place are written as that place must write them."""

from __future__ import annotations

import ast
from pathlib import Path

from accel_migrate.analysis.placement.respelling import Respelling
from accel_migrate.analysis.values.loops import CallGraph
from accel_migrate.analysis.values.roles import Roles
from accel_migrate.flow.nodes import unparse
from accel_migrate.flow.program import Program
from accel_migrate.flow.scopes import Module
from accel_migrate.source import Source

TEXT = """
def pick(kind):
    return kind

def make(kind):
    return pick(kind)

made = make("fast")
"""


def test_a_parameter_becomes_what_callers_pass_whatever_was_asked_of_the_original():
    module = Module(Source.from_bytes(Path("train.py"), TEXT.encode()))
    graph = CallGraph(Roles(Program([module])))
    call = module.tree.body[1].body[0].value
    assert isinstance(call, ast.Call)
    assert unparse(call) == "pick(kind)"
    carried = Respelling(graph, module, module.tree.body[2], set()).carried(module, call)
    assert carried is not None
    assert unparse(carried) == "pick('fast')"
    assert unparse(call) == "pick(kind)"
