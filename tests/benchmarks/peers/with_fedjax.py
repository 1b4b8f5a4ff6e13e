"""FedJAX's federated averaging with its default backend, which steps through compiled functions."""

from functools import partial
from importlib.metadata import version

import fedjax
import jax
import jax.numpy as jnp
from common import clock, start
from fedjax.algorithms import fed_avg
from jaxnet import accuracy, loss

jax.tree_map = jax.tree.map  # its last release is older than the removal of this name


def main() -> None:
    work = start()
    sets = {str(i): {"x": x, "y": y} for i, (x, y) in enumerate(zip(work.x, work.y, strict=True))}
    fed = fedjax.InMemoryFederatedData(sets)
    gradient = jax.grad(partial(loss, work))
    algorithm = fed_avg.federated_averaging(
        lambda params, batch, rng: gradient(params, batch["x"], batch["y"]),
        fedjax.optimizers.sgd(work.lr, work.momentum or None), fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs, seed=0),
    )  # fmt: skip
    state, keys = (
        algorithm.init([jnp.asarray(w) for w in work.init]),
        jax.random.split(jax.random.PRNGKey(0), 1000),
    )
    times = [clock()]
    for t in range(work.rounds):
        ids = [str(i) for i in work.chosen[t].tolist()]
        clients = [
            (i, data, key) for (i, data), key in zip(fed.get_clients(ids), keys, strict=False)
        ]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        times.append(clock())
    work.report(
        times, accuracy(work, state.params), f"fedjax {version('fedjax')}, jax {jax.__version__}"
    )


main()
