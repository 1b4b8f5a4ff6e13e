"""An environment for every peer, below build/peers/. One that cannot be made is reported with its
reason."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "build" / "peers"
SCRIPTS = Path(__file__).parent / "peers"
SHIM = SCRIPTS / "torchvision_schemas.py"


@dataclass(frozen=True)
class Peer:
    """What to install and which script to run. `spreads`: one run of it uses all cores by
    itself."""

    script: str
    requires: tuple[str, ...] | None  # None: our own environment
    spreads: bool = False


TORCH = f"torch=={version('torch').split('+')[0]}"  # as ours
PEERS = {
    "fedclust": Peer("with_fedclust", None),
    "plain PyTorch loop": Peer("with_torch", None),
    "pfl-research": Peer("with_pfl", ("pfl", TORCH)),
    "FedLab": Peer("with_fedlab", ("fedlab", TORCH)),
    "fluke": Peer("with_fluke", ("fluke-fl", TORCH)),
    "Flower": Peer("with_flower", ("flwr[simulation]", TORCH), spreads=True),
    "plain JAX": Peer("with_jax", ("jax",)),
    "FedJAX": Peer("with_fedjax", ("fedjax",)),
}


class Missing(RuntimeError):
    """The peer cannot be measured; the message says why."""


def python(name: str) -> Path:
    """The interpreter of a peer's environment, made on first use."""
    peer = PEERS[name]
    if peer.requires is None:
        return Path(sys.executable)
    folder = HERE / peer.script.removeprefix("with_")
    there, stamp = folder / "bin" / "python", folder / ".ready"
    if stamp.exists():
        return there
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: installing {', '.join(peer.requires)}", file=sys.stderr, flush=True)
    call([sys.executable, "-m", "venv", str(folder)])
    limits = HERE / "constraints.txt"  # whatever pulls torch in gets the one that fits the rest
    limits.write_text(f"{TORCH}\ntorchvision=={version('torchvision').split('+')[0]}\n")
    call([str(there), "-m", "pip", "install", "-q", "-c", str(limits), *peer.requires])
    if list(folder.glob("lib/*/site-packages/torchvision")) and failed(
        [str(there), "-c", "import torchvision"]
    ):
        site = next(folder.glob("lib/*/site-packages"))
        shutil.copy(SHIM, site / "torchvision_schemas.py")
        (site / "torchvision_schemas.pth").write_text("import torchvision_schemas\n")
    stamp.touch()
    return there


def call(command: list[str]) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next(
            (line for line in lines if line.startswith("ERROR")),
            lines[-1] if lines else "no reason given",
        )
        raise Missing(f"cannot be installed: {reason}")


def failed(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True).returncode != 0
