"""CAFA's clients: some with an equal random share, the others with few classes."""

import math

import numpy as np

from fedclust.assembly import Index, Weights, distribute
from fedclust.checks import one_of, require, whole
from fedclust.rng import numpy_stream

CLASSES_PER_CLIENT = {  # by generator
    "paper": (2, 4),
    "code": (1, 2),
    "shards": (1, 9),
    "contiguous": (2, 2),
}


def mixed(
    y: Index,
    classes: int,
    iid: int,
    other: int,
    generator: str,
    per_client: tuple[int, int] | None,
    seed: int,
) -> tuple[list[Index], Index]:
    """Sample positions per client, and the groups, of `partition.iid_mix`."""
    one_of(CLASSES_PER_CLIENT, generator=generator)
    whole("[0, inf)", iid=iid, other=other)
    require(
        1 <= iid + other <= len(y),
        f"iid={iid}, other={other}: there must be 1 to {len(y)} clients in all, one per sample",
    )
    low, high = per_client or CLASSES_PER_CLIENT[generator]
    whole(f"[1, {classes}]", fewest_classes=low, most_classes=high)
    require(low <= high, f"classes_per_client={low, high}: the smaller number comes first")
    rng, size = numpy_stream(seed, "iid_mix", generator), len(y) // (iid + other)
    order, numbers = rng.permutation(len(y)), rng.integers(low, high + 1, other)
    lists, rest = [order[i * size : (i + 1) * size] for i in range(iid)], order[iid * size :]
    if generator == "code":
        lists += [few_classes(y, classes, n, size, rng) for n in numbers]
    elif generator == "contiguous":
        lists += [rest[mine] for mine in neighbouring_classes(y[rest], classes, numbers, rng)]
    elif other:
        weigh = paper_weights if generator == "paper" else shard_weights
        weights = weigh(numbers, classes, rng)
        lists += [rest[mine] for mine in distribute(y[rest], weights, np.arange(other), rng)]
    return lists, np.concatenate([np.zeros(iid, np.int64), np.arange(1, other + 1)])


def few_classes(y: Index, classes: int, number: int, size: int, rng: np.random.Generator) -> Index:
    """CAFA's "code": `size` samples of `number` random classes, in Dirichlet(0.5) proportions."""
    amounts = np.maximum(np.rint(rng.dirichlet(np.full(number, 0.5)) * size).astype(int), 1)
    amounts[amounts.argmax()] += size - amounts.sum()
    held = list(zip(rng.choice(classes, number, replace=False), amounts, strict=True))
    pools = {c: np.flatnonzero(y == c) for c, _ in held}
    for c, n in held:
        require(
            0 < n <= len(pools[c]),
            f"{n} of a client's {size} samples are asked of class {c}, which has {len(pools[c])}: "
            "ask for more (so smaller) clients, or use more data",
        )
    return np.concatenate([rng.choice(pools[c], n, replace=False) for c, n in held])


def paper_weights(numbers: Index, classes: int, rng: np.random.Generator) -> Weights:
    """CAFA's "paper": each client's weight in each class, (clients, classes)."""
    weights = np.zeros((len(numbers), classes))
    amounts = rng.integers(10, 101, len(numbers))
    for i, (n, amount) in enumerate(zip(numbers, amounts, strict=True)):
        held = (weights.any(0) + rng.random(classes)).argsort()[:n]  # classes of nobody come first
        weights[i, held] = amount / n
    return weights


def shard_weights(numbers: Index, classes: int, rng: np.random.Generator) -> Weights:
    """CAFA's "shards": each client's number of shards of each class, (clients, classes)."""
    total = numbers.sum()
    require(
        total >= classes,
        f"{total} shards of {classes} classes: ask for more clients or more classes per client",
    )
    weights = np.zeros((len(numbers), classes))
    left = 1 + rng.multinomial(total - classes, np.full(classes, 1 / classes))
    for i in np.repeat(np.arange(len(numbers)), numbers).tolist():
        wish = left + rng.random(classes) - total * weights[i]  # a class it has comes last
        most = np.where(left > 0, wish, -np.inf).argmax()
        weights[i, most] += 1
        left[most] -= 1
    return weights


def neighbouring_classes(
    y: Index, classes: int, numbers: Index, rng: np.random.Generator
) -> list[Index]:
    """CAFA's "contiguous": random budgets that use up all samples, from a random class onwards."""
    pools = [rng.permutation(np.flatnonzero(y == c)) for c in range(classes)]
    ends = rng.integers(10, 101, len(numbers)).cumsum()
    budgets = np.diff(np.rint(ends / max(ends, default=1) * len(y)).astype(int), prepend=0)
    lists = []
    for budget, number in zip(budgets.tolist(), numbers.tolist(), strict=True):
        share, c, mine = math.ceil(budget / number), int(rng.integers(classes)), []
        while budget > 0:  # a class that has run out gives nothing, the next one more
            taken, pools[c] = np.split(pools[c], [min(share, budget)])
            mine.append(taken)
            budget, c = budget - len(taken), (c + 1) % classes
        lists.append(np.concatenate(mine))
    return lists
