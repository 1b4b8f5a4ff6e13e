"""The same network for JAX, with parameters laid out as PyTorch has them."""

import jax
import jax.numpy as jnp
from common import Work


def forward(work: Work, params: list, x: jax.Array) -> jax.Array:
    """Logits of a batch (B, c, h, w)."""
    params = list(params)
    for i in range(len(work.settings["convolutions"])):
        w, b = params.pop(0), params.pop(0)
        x = jax.nn.relu(jax.lax.conv(x, w, (1, 1), "VALID") + b[:, None, None])
        if work.settings["pool"][i]:
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(len(x), -1)
    while params:
        w, b = params.pop(0), params.pop(0)
        x = x @ w.T + b
        x = jax.nn.relu(x) if params else x
    return x


def loss(work: Work, params: list, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross entropy."""
    logits = jax.nn.log_softmax(forward(work, params, x))
    return -jnp.take_along_axis(logits, y[:, None], 1).mean()


def accuracy(work: Work, params: list) -> float:
    guess = jax.jit(lambda x: forward(work, params, x).argmax(1))
    right = [
        (guess(work.x_test[i : i + 1000]) == work.y_test[i : i + 1000]).mean()
        for i in range(0, len(work.y_test), 1000)
    ]
    return float(sum(right) / len(right))
