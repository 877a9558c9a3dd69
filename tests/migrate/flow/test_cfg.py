"""What runs before, after, again and under which condition."""

from __future__ import annotations

import ast
import textwrap

from accel_migrate.flow.cfg import Graph


class Flow:
    """A program whose statements are known by the name that they bind or by their text."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(textwrap.dedent(text))
        self.graph = Graph(tree)
        self.by_text = {ast.unparse(n).split("\n")[0]: n for n in ast.walk(tree) if self.graph.holds(n)}

    def __getitem__(self, text: str) -> ast.AST:
        return self.by_text[text]

    def dominates(self, first: str, second: str) -> bool:
        return self.graph.dominates(self[first], self[second])

    def post_dominates(self, second: str, first: str) -> bool:
        return self.graph.post_dominates(self[second], self[first])

    def decided_by(self, text: str) -> list[tuple[str, bool]]:
        found = self.graph.control_dependences(self[text])
        return [(ast.unparse(each.test) if each.test else type(each.statement).__name__, each.branch) for each in found]


def test_a_branch_dominates_nothing_after_it() -> None:
    flow = Flow("start()\nif x:\n    inner()\nelse:\n    other()\nafter()")
    assert flow.dominates("start()", "after()") and flow.dominates("if x:", "inner()")
    assert not flow.dominates("inner()", "after()") and not flow.dominates("inner()", "other()")
    assert flow.post_dominates("after()", "inner()") and not flow.post_dominates("inner()", "start()")
    assert flow.decided_by("inner()") == [("x", True)] and flow.decided_by("other()") == [("x", False)]
    assert flow.decided_by("after()") == []


def test_what_follows_an_early_end_depends_on_its_test() -> None:
    for leave in ("sys.exit(1)", "raise ValueError", "exit()", "os._exit(0)", "assert False"):
        flow = Flow(f"if x:\n    {leave}\nafter()")
        assert flow.decided_by("after()") == [("x", False)], leave
        assert not flow.graph.reachable(flow[leave], flow["after()"])


def test_nested_conditions_all_decide() -> None:
    flow = Flow("if a:\n    while b:\n        for i in c:\n            inner()")
    assert flow.decided_by("inner()")[:1] == [("c", True)]
    assert set(flow.decided_by("inner()")) == {("a", True), ("b", True), ("c", True)}


def test_loops() -> None:
    flow = Flow(
        "before()\nfor i in x:\n    body()\n    if done:\n        last()\n        break\nelse:\n    whole()\nafter()"
    )
    assert flow.graph.in_loop(flow["body()"]) and not flow.graph.in_loop(flow["before()"])
    assert not flow.graph.in_loop(flow["last()"]), "what ends in a break runs once"
    assert not flow.graph.in_loop(flow["after()"]) and not flow.dominates("body()", "after()")
    assert ("done", False) in flow.decided_by("whole()") or ("x", False) in flow.decided_by("whole()")
    assert flow.graph.reachable(flow["body()"], flow["body()"])


def test_a_loop_without_end_is_left_by_its_breaks_alone() -> None:
    flow = Flow("while True:\n    body()\n    if done:\n        break\nafter()")
    assert flow.dominates("body()", "after()") and flow.post_dominates("after()", "body()")
    endless = Flow("while 1:\n    body()\nafter()")
    assert not endless.graph.is_reached(endless["after()"])
    assert endless.decided_by("body()") == []


def test_continue_skips_the_rest_of_a_round() -> None:
    flow = Flow("for i in x:\n    if skip:\n        continue\n    rest()\nafter()")
    assert ("skip", False) in flow.decided_by("rest()")
    assert ("skip", False) not in flow.decided_by("after()")


def test_a_handler_may_run_before_the_block_did_anything() -> None:
    flow = Flow("try:\n    first()\n    second()\nexcept E:\n    handled()\nelse:\n    fine()\nafter()")
    assert not flow.dominates("first()", "handled()") and not flow.dominates("first()", "after()")
    assert flow.dominates("second()", "fine()")
    assert flow.graph.reachable(flow["first()"], flow["handled()"])
    assert flow.decided_by("handled()") == [("Try", True)]
    assert flow.post_dominates("after()", "first()")


def test_after_a_finally_the_whole_block_ran() -> None:
    flow = Flow("try:\n    first()\nfinally:\n    last()\nafter()")
    assert flow.dominates("first()", "after()") and flow.dominates("last()", "after()")
    assert not flow.dominates("first()", "last()"), "the finally also runs when the block failed at once"
    assert flow.post_dominates("last()", "first()")


def test_every_way_out_goes_through_the_finally() -> None:
    text = (
        "for i in x:\n    try:\n        if a:\n            break\n        body()\n    finally:\n        last()\nafter()"
    )
    flow = Flow(text)
    assert flow.graph.reachable(flow["break"], flow["last()"]) and flow.graph.reachable(flow["last()"], flow["after()"])
    assert flow.post_dominates("last()", "break")


def test_return_in_a_finally_of_a_function() -> None:
    tree = ast.parse("def f():\n    try:\n        return g()\n    finally:\n        close()\n    never()\n")
    graph = Graph(tree.body[0])  # type: ignore[arg-type]
    block = tree.body[0].body  # type: ignore[attr-defined]
    assert graph.post_dominates(block[0].finalbody[0], block[0].body[0])
    assert not graph.is_reached(block[1])


def test_a_suppressed_error_skips_the_rest_of_its_block() -> None:
    flow = Flow("with suppress(OSError):\n    first()\n    second()\nafter()")
    assert not flow.dominates("first()", "after()")
    plain = Flow("with open(f):\n    first()\nafter()")
    assert plain.dominates("first()", "after()")


def test_cases_of_a_match() -> None:
    flow = Flow("match x:\n    case 1:\n        one()\n    case _:\n        rest()\nafter()")
    assert not flow.dominates("one()", "after()") and flow.post_dominates("after()", "one()")
    whole = Flow("match x:\n    case y:\n        one()\nafter()")
    assert whole.dominates("one()", "after()")


def test_a_class_body_runs_where_it_stands() -> None:
    flow = Flow("class A:\n    first()\n    def method(self):\n        inner()\nafter()")
    assert flow.dominates("first()", "after()")
    assert "inner()" not in flow.by_text


def test_what_no_run_comes_to() -> None:
    flow = Flow("if False:\n    never()\nif True:\n    always()\nafter()")
    assert not flow.graph.is_reached(flow["never()"]) and flow.dominates("always()", "after()")


def test_deeply_nested_finally_blocks_stay_small() -> None:
    text = "".join("    " * depth + "try:\n" for depth in range(15)) + "    " * 15 + "body()\n"
    text += "".join("    " * depth + f"finally:\n{'    ' * depth}    last{depth}()\n" for depth in reversed(range(15)))
    flow = Flow(text)
    assert len(flow.graph.points.points) < 1000
    assert flow.post_dominates("last0()", "body()")


def test_a_loop_binds_its_target_in_each_round() -> None:
    flow = Flow("""
        for x in rows:
            first(x)
            x = moved(x)
        last(x)
        """)
    loop, moved = flow["for x in rows:"], flow["x = moved(x)"]
    assert not flow.graph.reachable_past(moved, flow["first(x)"], [loop])
    assert flow.graph.reachable_past(moved, flow["last(x)"], [loop])
    assert flow.graph.reachable_past(moved, flow["first(x)"], [])


def test_what_runs_in_each_round_of_a_loop_without_an_end_depends_on_no_test_in_it() -> None:
    flow = Flow("while True:\n    body()\n    if due:\n        keep()")
    assert flow.decided_by("keep()") == [("due", True)]
    assert flow.decided_by("body()") == []


def test_a_scope_that_fails_does_not_come_to_its_end() -> None:
    flow = Flow("""
        for step in steps:
            try:
                rows = next(batches)
            except StopIteration:
                rows = next(again)
            write(rows)
        wait()
        """)
    write, wait = flow["write(rows)"], flow["wait()"]
    assert flow.graph.reachable_past(write, None, []) and flow.graph.reachable_past(wait, None, [])
    assert not flow.graph.reachable_past(write, None, [wait])
