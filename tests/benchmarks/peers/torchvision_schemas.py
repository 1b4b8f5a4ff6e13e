"""Lets `import torchvision` work where pip joins a CPU build of torch with torchvision's plain
wheel.

A peer's script says `import torchvision` itself, so this file goes into the peer's environment. There
torchvision's compiled operators cannot be loaded, and its registrations stop with "operator
torchvision::nms does not exist". No benchmark uses them: it is enough to declare them just before.
"""

import sys

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class DeclareFirst:
    """A finder that finds nothing, but is asked when torchvision is about to register."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "torchvision._meta_registrations":
            import torch

            for name in ("nms", "qnms"):
                if not hasattr(torch.ops.torchvision, name):
                    torch.library.define(f"torchvision::{name}", SCHEMA)


sys.meta_path.insert(0, DeclareFirst())
