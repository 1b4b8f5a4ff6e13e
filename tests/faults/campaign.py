"""What all parts of the campaign share: its size, and what counts as a clear refusal.

`make faults` runs the whole of it; `make test` every tenth case (CAMPAIGN says which).
"""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fedclust.experiments import TrialsFailed

WHOLE = bool(os.environ.get("CAMPAIGN"))
SHARE = 1 if WHOLE else 10
LONGEST = 300  # characters of a refusal
PATIENCE = 2.0  # seconds of processor time until a refusal
BARE = (TypeError, KeyError, MemoryError, AttributeError, IndexError, RecursionError)


def some(cases: Sequence[Any]) -> Sequence[Any]:
    """All cases, or every tenth."""
    return cases[::SHARE]


def count(whole: int) -> int:
    return whole // SHARE


def complaint(act: Callable[[], Any]) -> str | None:
    """Why an act was not refused as it should be; None if it was."""
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act()
    except Exception as error:
        took, said = time.process_time() - began, str(error).strip()
        if isinstance(error, TrialsFailed):  # a headline, then a name and a reason for each trial
            said = "\n".join(said.splitlines()[2:])
        if isinstance(error, BARE):
            return f"a bare {type(error).__name__}: {said[:100]}"
        if not said or "\n" in said or len(said) > LONGEST:
            return f"{len(said)} characters, {said.count(chr(10)) + 1} lines: {said[:150]!r}"
        return f"{took:.1f} seconds" if took > PATIENCE else None
    return "accepted"


def complaints(cases: dict[str, Callable[[], Any]]) -> list[str]:
    found = {name: complaint(act) for name, act in cases.items()}
    return [f"{name}: {why}" for name, why in found.items() if why]
