"""How a loss was made out of the samples of its batch, read from the graph that autograd keeps."""

from __future__ import annotations

from typing import Any

# Nodes through which a mean stays a mean.
LINEAR = (
    "Add",
    "Sub",
    "Neg",
    "Div",
    "Mul",
    "Clone",
    "ToCopy",
    "Alias",
    "Squeeze",
    "Unsqueeze",
    "View",
    "Reshape",
    "Stack",
)
SUM = 2  # of torch's reductions
MOST_NODES = 200


def forms(loss: Any) -> list[str]:
    """What makes the mean over processes another number than the loss of the whole batch, as far as can be told."""
    found: set[str] = set()
    waiting, seen = [loss.grad_fn], 0
    while waiting and seen < MOST_NODES:
        node = waiting.pop()
        seen += 1
        if node is None:
            continue
        name = type(node).__name__
        if name.startswith(LINEAR):
            waiting.extend(following for following, _ in node.next_functions)
        elif name.startswith("Sum"):
            found.add("summed")
        elif hasattr(node, "_saved_reduction"):
            found.update(_of_criterion(node))
        elif not name.startswith(("Mean", "AccumulateGrad")) and _is_number(node):
            found.add("not a mean")
    return sorted(found)


def _of_criterion(node: Any) -> list[str]:
    if node._saved_reduction == SUM:
        return ["summed"]
    weight = getattr(node, "_saved_weight", None)
    if weight is not None:
        return ["weighted"]
    ignored = getattr(node, "_saved_ignore_index", None)
    target = getattr(node, "_saved_target", None)
    if ignored is None or target is None:
        return []
    if bool((target == ignored).any()):
        return ["ignored targets"]
    scores = node._saved_self
    if scores.dim() == 2 and scores.shape[0] == scores.shape[1] > 1 and target.tolist() == list(range(len(target))):
        return ["within the batch"]
    return []


def _is_number(node: Any) -> bool:
    """Whether what the node made is one number, so that it was made out of means or sums."""
    shapes = [tuple(each.shape) for each in getattr(node, "_input_metadata", ())]
    return bool(shapes) and all(shape in ((), (1,)) for shape in shapes)
