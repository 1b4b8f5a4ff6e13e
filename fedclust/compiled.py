"""How the compiled parts are compiled. What Numba has compiled it keeps beside the file until that file changes."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import numba

compiled: Any = partial(
    numba.njit,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz"},  # liberties with sums, none with infinities
    cache=os.access(Path(__file__).parent, os.W_OK),
)
