"""Workers that the sweeps of several notebooks share, first come, first served.

What one notebook leaves idle while it draws then trains for the next, and Python, torch and the data are loaded once
per worker, not once per notebook.
"""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from joblib.externals.loky import get_reusable_executor

WHERE = "FEDCLUST_WORKERS"  # environment variable: the key and the address of a process that has workers
IDLE = 300.0  # seconds after which a worker without work ends, e.g. when whoever started it was killed


@contextmanager
def shared(jobs: int) -> Iterator[None]:
    """As long as this lasts, sweeps of processes started here send their work to `jobs` workers of this process."""
    key = os.urandom(16)
    with Listener(authkey=key) as door:
        threading.Thread(target=attend, args=(door, jobs), daemon=True).start()
        os.environ[WHERE] = f"{key.hex()} {door.address}"
        try:
            yield
        finally:
            del os.environ[WHERE]
    get_reusable_executor(reuse=True).shutdown(kill_workers=True)  # whatever it was last asked for


def attend(door: Listener, jobs: int) -> None:
    while True:
        try:
            visitor = door.accept()
        except (AuthenticationError, EOFError, ConnectionError):  # a stranger, or somebody who was killed
            continue
        except OSError:  # closed
            return
        threading.Thread(target=serve, args=(visitor, jobs), daemon=True).start()


def serve(visitor: Connection, jobs: int) -> None:
    """Have a sweep's calls done; each answer goes back when it is there, be it an error."""
    with visitor, suppress(EOFError, OSError):  # who asked is gone
        code, function, arguments = visitor.recv()
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        # Other code is other settings, and for these loky makes new workers, as it does when one was lost.
        pool = get_reusable_executor(max_workers=jobs, timeout=IDLE, env={**one, "FEDCLUST_CODE": code})
        asked = [pool.submit(function, argument) for argument in arguments]
        try:
            for done in as_completed(asked):
                visitor.send(done.exception() or done.result())
        finally:
            for each in asked:
                each.cancel()


def reached() -> Connection | None:
    """The process that has workers for this one, if there is one and it is still there."""
    key, _, address = os.environ.get(WHERE, "").partition(" ")
    with suppress(OSError, EOFError):
        return Client(address, authkey=bytes.fromhex(key)) if address else None
    return None


def answers(server: Connection, code: str, function: Any, arguments: list[Any]) -> Iterator[Any]:
    """function(argument) for each, in the order in which they are done."""
    with server:
        server.send((code, function, arguments))
        for _ in arguments:
            if isinstance(answer := server.recv(), BaseException):
                raise answer
            yield answer
