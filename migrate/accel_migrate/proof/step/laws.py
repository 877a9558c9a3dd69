"""Which operators act row by row, and where the rows are in what they make. What is not here stops a proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accel_migrate.proof.step.graph import Node, values_in
from accel_migrate.proof.step.operators import (
    ALONG,
    BATCH_NORMS,
    CONVOLUTIONS,
    CUTS,
    FILLED,
    IMAGES,
    POINTWISE,
    RANDOM,
    RESHAPES,
)
from accel_migrate.proof.step.rows import Law, Rows, Stop, reshaped


@dataclass(frozen=True)
class Call:
    """One operator, with the laws of what it takes, by the numbers of the first trace."""

    node: Node
    laws: dict[int, Law]
    shapes: Callable[[int], tuple[int, ...]]
    scaled: Callable[[int], list[int]]  # dimensions of what it makes that hold rows

    def values(self, name: str) -> list[int]:
        return list(values_in(self.node.args.get(name)))

    def value(self, name: str) -> int:
        return self.values(name)[0]

    def law(self, name: str) -> Law:
        found = self.values(name)
        return self.laws[found[0]] if found else None

    def constant(self, *names: str) -> None:
        """What these are must not come from rows."""
        for name in names:
            if any(self.laws[each] is not None for each in self.values(name)):
                raise Stop(f"takes its {name} from the rows of a batch")


Rule = Callable[[Call], list[Law]]


def laws(call: Call) -> list[Law]:
    """Of each value that the operator makes."""
    node = call.node
    rows = any(law is not None for law in call.laws.values())
    holds = [call.scaled(made) for made in node.made]
    if any(len(dims) > 1 for dims in holds):
        raise Stop("sets the rows of a batch against each other")
    if node.draws and node.name not in RANDOM:
        raise Stop("draws random numbers in a way that is not known")
    if node.draws and not all(holds):
        raise Stop("draws random numbers for all rows of a batch together")
    if node.name in FILLED or (node.draws and not rows):
        return [Rows(dims[0], any_order=True) if dims else None for dims in holds]
    if not rows and not any(holds):
        return [None for _ in holds]
    rule = TABLE.get(node.name)
    if rule is None:
        raise Stop("is not known to act row by row" if rows else "makes something for each row by its number")
    found = rule(call)
    for made, law, dims in zip(node.made, found, holds):
        empty = 0 in call.shapes(made)
        if not empty and dims != ([] if law is None else [law.dim]):
            raise Stop("mixes the rows of a batch")
    return found


def _pointwise(call: Call) -> list[Law]:
    """Entry by entry, with smaller shapes repeated."""
    shape = call.shapes(call.node.made[0])
    found: list[Rows] = []
    written = call.values("self") if call.node.op.split(".")[1].rstrip("_") in ("copy", "fill", "zero") else []
    for value, law in call.laws.items():
        if law is not None and value not in written:
            found.append(Rows(law.dim + len(shape) - len(call.shapes(value)), law.before, law.after, law.any_order))
    if not found:
        return [Rows(call.scaled(made)[0], any_order=True) if call.scaled(made) else None for made in call.node.made]
    exact = [law for law in found if not law.any_order]
    if len({(law.dim, law.before, law.after) for law in exact}) > 1 or len({law.dim for law in found}) > 1:
        raise Stop("pairs rows of a batch with other rows")
    return [(exact or found)[0]] * len(call.node.made)


def _along(call: Call) -> list[Law]:
    """Over some dimensions, which must not be that of the rows."""
    law, shape = call.law("self"), call.shapes(call.value("self"))
    assert law is not None
    given = call.node.args.get("dim", call.node.args.get("dims"))
    dims = given if isinstance(given, list) else [given] if isinstance(given, int) else list(range(len(shape)))
    if call.node.name == "glu":
        dims = [call.node.args.get("dim", -1)]
    over = {dim % len(shape) for dim in dims or range(len(shape))}
    if law.dim in over:
        raise Stop("takes all rows of a batch together, and what follows is not linear")
    gone = sum(dim < law.dim for dim in over) if len(call.shapes(call.node.made[0])) < len(shape) else 0
    return [Rows(law.dim - gone, law.before, law.after, law.any_order)] * len(call.node.made)


def _reshape(call: Call) -> list[Law]:
    law, old = call.law("self"), call.shapes(call.value("self"))
    made = call.node.made[0]
    holds = call.scaled(made)
    if law is None or len(holds) != 1:
        raise Stop("takes rows apart")
    return [reshaped(law, old, call.shapes(made), holds[0])]


def _moved(call: Call) -> list[Law]:
    """Dimensions in another order."""
    law, size = call.law("self"), len(call.shapes(call.value("self")))
    assert law is not None
    args = call.node.args
    order = list(range(size))
    if call.node.name == "permute":
        order = [dim % size for dim in args["dims"]]
    elif size > 1:
        one, two = (0, 1) if call.node.name == "t" else (args["dim0"] % size, args["dim1"] % size)
        order[one], order[two] = two, one
    return [Rows(order.index(law.dim), law.before, law.after, law.any_order)]


def _expand(call: Call) -> list[Law]:
    law, made = call.law("self"), call.node.made[0]
    shape, old = call.shapes(made), call.shapes(call.value("self"))
    if law is not None:
        dim = law.dim + len(shape) - len(old)
        if shape[dim] != old[law.dim]:
            raise Stop("repeats the rows of a batch")
        return [Rows(dim, law.before, law.after, law.any_order)]
    dim = call.scaled(made)[0] - (len(shape) - len(old))
    if dim >= 0 and old[dim] != 1:
        raise Stop("makes something for each row by its number")
    return [Rows(call.scaled(made)[0], any_order=True)]


def _cut(call: Call) -> list[Law]:
    """A part along one dimension, which must not be that of the rows, unless it is the whole."""
    law, shape = call.law("self"), call.shapes(call.value("self"))
    assert law is not None
    dim = call.node.args.get("dim", 0) % len(shape)
    if dim == law.dim:
        whole = call.node.name == "slice" and call.shapes(call.node.made[0]) == shape
        if not whole or call.node.args.get("step", 1) != 1:
            raise Stop("takes some rows of a batch, and each process has its own first and last")
    gone = call.node.name in ("select", "unbind") and dim < law.dim
    return [Rows(law.dim - gone, law.before, law.after, law.any_order)] * len(call.node.made)


def _joined(call: Call) -> list[Law]:
    values = call.values("tensors")
    first = call.shapes(call.node.made[0])
    dim = call.node.args.get("dim", 0) % len(first)
    stacked = call.node.name == "stack"
    found = [call.laws[value] for value in values]
    exact = [law for law in found if law is not None and not law.any_order]
    if any(law is None for law in found) or len({(law.dim, law.before, law.after) for law in exact}) > 1:
        raise Stop("joins values that have rows with others")
    law = next(iter(exact), found[0])
    assert law is not None
    if not stacked and law.dim == dim and len(values) > 1:
        raise Stop("joins batches along their rows")
    return [Rows(law.dim + (stacked and dim <= law.dim), law.before, law.after, law.any_order)]


def _matrices(call: Call) -> list[Law]:
    """mm, bmm, addmm, baddbmm: rows may be those of the result on either side, or of both stacks; never summed over."""
    args = call.node.args
    names = ("mat1", "mat2") if "mat1" in args else ("batch1", "batch2") if "batch1" in args else ("self", "mat2")
    if call.node.name in ("addmm", "baddbmm"):
        call.constant("self")
    if call.node.name == "mv":
        names = ("self", "vec")
    left, right = (call.law(name) for name in names)
    size = len(call.shapes(call.value(names[0])))
    if left is not None and right is not None:
        if size == 3 and left.dim == right.dim == 0 and left.matches(right):
            return [right if left.any_order else left]
        raise Stop("multiplies rows of a batch with each other")
    law = left or right
    assert law is not None
    if (left is not None and law.dim == size - 1) or (right is not None and law.dim == size - 2):
        raise Stop("takes all rows of a batch together, and what follows is not linear")
    return [law]


def _first(*constants: str) -> Rule:
    """Rows come first in `input` or `self`, and are taken one by one; the rest are constants."""

    def rule(call: Call) -> list[Law]:
        name = "input" if call.values("input") else "self"
        law = call.law(name)
        call.constant(*constants)
        others = {each for key in call.node.args if key not in (name, *constants) for each in call.values(key)}
        if law is None or law.dim != 0 or any(call.laws[each] is not None for each in others):
            raise Stop("takes rows where it takes none one by one")
        return [law] * len(call.node.made)

    return rule


def _image(call: Call) -> list[Law]:
    law, shape = call.law("self"), call.shapes(call.value("self"))
    plain = {"avg_pool1d": 3, "max_pool1d": 3, "upsample_nearest1d": 3}.get(call.node.name, 4)
    if call.node.name != "constant_pad_nd" and len(shape) < plain + call.node.name.count("3d"):
        raise Stop("takes one image, not a batch")
    if law is None or law.dim != 0:
        raise Stop("takes rows where it takes none one by one")
    return [law] * len(call.node.made)


def _layer_norm(call: Call) -> list[Law]:
    law, shape = call.law("input"), call.shapes(call.value("input"))
    call.constant("weight", "bias")
    if law is None or law.dim >= len(shape) - len(call.node.args["normalized_shape"]):
        raise Stop("takes its statistics over the rows of a batch")
    return [law] * len(call.node.made)


def _batch_norm(call: Call) -> list[Law]:
    law = call.law("input")
    training = call.node.args.get("training", call.node.op.split(".")[1] != "_native_batch_norm_legit_no_training")
    if training or call.node.args.get("running_mean") is None:
        raise Stop(
            "mixes rows: it takes its statistics from the samples of each process; "
            "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) takes them from all"
        )
    call.constant("weight", "bias", "running_mean", "running_var")
    if law is None or law.dim == 1:
        raise Stop("takes rows where it takes none one by one")
    return [law if call.scaled(made) else None for made in call.node.made]


def _embedding(call: Call) -> list[Law]:
    call.constant("weight")
    if call.node.args.get("scale_grad_by_freq"):
        raise Stop("scales gradients by how often a word is in the batch")
    law = call.law("indices")
    assert law is not None
    return [law]


def _gather(call: Call) -> list[Law]:
    """gather, scatter: along a dimension that is not that of the rows, row by row."""
    shape = call.shapes(call.node.made[0])
    dim = call.node.args["dim"] % len(shape)
    found = [law for law in call.laws.values() if law is not None]
    exact = [law for law in found if not law.any_order]
    index = call.law("index")
    if index is None or call.law("self") is None or len({(each.dim, each.before, each.after) for each in exact}) > 1:
        raise Stop("pairs rows of a batch with other rows")
    sizes = {call.shapes(value)[law.dim] for value, law in call.laws.items() if law is not None}
    if index.dim == dim or len({each.dim for each in found}) > 1 or len(sizes) > 1:
        raise Stop("takes rows by their number")
    return [(exact or found)[0]]


def _looked_up(call: Call) -> list[Law]:
    """table[index], where the table has no rows of a batch."""
    call.constant("self")
    given = call.node.args.get("indices", call.node.args.get("index"))
    if call.node.name == "index_select" and call.node.args.get("dim") != 0:
        raise Stop("takes rows by their number")
    if isinstance(given, list) and (len(given) != 1 or given[0] is None):
        raise Stop("is not known to act row by row")
    value = next(values_in(given))
    law = call.laws[value]
    assert law is not None
    return [law]


def _criterion(call: Call) -> list[Law]:
    """nll_loss before it is reduced: a target for each row of scores."""
    scores, target = call.law("self"), call.law("target")
    call.constant("weight")
    if scores is None or target is None or scores.dim != 0 or target.dim != 0 or not scores.matches(target):
        raise Stop("pairs rows of a batch with other rows")
    return [target if scores.any_order else scores]


def before_reduction(call: Call) -> Law:
    """Of a criterion whose mean or sum is taken: the law of its terms."""
    if call.node.name.startswith("nll_loss"):
        return _criterion(call)[0]
    shape = call.shapes(call.value("self"))
    found = {value: law for value, law in call.laws.items() if law is not None}
    exact = {law for law in found.values() if not law.any_order}
    if any(call.shapes(value) != shape for value in (*found, call.value("target"))) or len(exact) > 1:
        raise Stop("pairs rows of a batch with other rows")
    if len({law.dim for law in found.values()}) > 1:
        raise Stop("pairs rows of a batch with other rows")
    return next(iter(exact), next(iter(found.values()), None))


def _attention(call: Call) -> list[Law]:
    found = [call.law(name) for name in ("query", "key", "value")]
    mask = call.law("attn_mask")
    if any(law is None or law.dim != 0 for law in found) or (mask is not None and mask.dim != 0):
        raise Stop("sets the rows of a batch against each other")
    if call.node.args.get("dropout_p"):
        raise Stop("is not known to act row by row")
    law = found[0]
    assert law is not None
    if any(other is not None and not law.matches(other) for other in (*found, mask)):
        raise Stop("pairs rows of a batch with other rows")
    return [law if call.scaled(made) else None for made in call.node.made]


TABLE: dict[str, Rule] = {
    **dict.fromkeys(POINTWISE | RANDOM, _pointwise),
    **dict.fromkeys(ALONG, _along),
    **dict.fromkeys(RESHAPES, _reshape),
    **dict.fromkeys(("t", "transpose", "permute"), _moved),
    **dict.fromkeys(("expand", "repeat"), _expand),
    **dict.fromkeys(CUTS, _cut),
    **dict.fromkeys(("cat", "stack"), _joined),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv"), _matrices),
    **dict.fromkeys(CONVOLUTIONS, _first("weight", "bias")),
    "native_group_norm": _first("weight", "bias"),
    **dict.fromkeys(IMAGES, _image),
    "native_layer_norm": _layer_norm,
    **dict.fromkeys(BATCH_NORMS, _batch_norm),
    "embedding": _embedding,
    **dict.fromkeys(("gather", "scatter"), _gather),
    **dict.fromkeys(("index", "index_select"), _looked_up),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _criterion),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
}
