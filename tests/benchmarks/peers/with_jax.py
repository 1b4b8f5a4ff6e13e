"""Plain JAX: a compiled scan over the steps, vmapped over the clients."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from common import clock, start
from jaxnet import accuracy, loss


def main() -> None:
    work = start()
    x, y = jnp.asarray(work.x), jnp.asarray(work.y)

    def local(params: list, i: jax.Array, plan: jax.Array) -> list:
        def step(carry, batch):
            params, velocity = carry
            gradient = jax.grad(partial(loss, work))(params, x[i][batch], y[i][batch])
            if work.momentum:
                velocity = jax.tree.map(lambda v, g: work.momentum * v + g, velocity, gradient)
            change = velocity if work.momentum else gradient
            return (jax.tree.map(lambda w, v: w - work.lr * v, params, change), velocity), None

        still = [jnp.zeros_like(w) for w in params] if work.momentum else []
        return jax.lax.scan(step, (params, still), plan)[0][0]

    @jax.jit
    def one_round(params: list, clients: jax.Array, plans: jax.Array) -> list:
        trained = jax.vmap(local, (None, 0, 0))(params, clients, plans)
        return [w.mean(0) for w in trained]

    params, times = [jnp.asarray(w) for w in work.init], [clock()]
    for t in range(work.rounds):
        plans = np.stack([work.plan(t, i) for i in work.chosen[t].tolist()])
        params = jax.block_until_ready(one_round(params, work.chosen[t], plans))
        times.append(clock())
    work.report(times, accuracy(work, params), f"jax {jax.__version__}")


main()
