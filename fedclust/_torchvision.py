"""Lets `import torchvision` work where pip joins a CPU build of torch with torchvision's plain wheel.

There torchvision's compiled operators cannot be loaded, and its registrations stop with "operator torchvision::nms does
not exist". Nothing here uses those operators, so it is enough that their schemas are declared just before. Importing
this file costs nothing; ``from fedclust._torchvision import torchvision`` imports the real one. The Makefile copies
this file into an environment that has the fault, so that a plain ``import torchvision`` works there.
"""

import sys
from types import ModuleType

SCHEMAS = dict.fromkeys(("nms", "qnms"), "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


class DeclareFirst:
    """A finder that finds nothing, but hears when torchvision is about to register its operators."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "torchvision._meta_registrations":
            import torch

            for name, schema in SCHEMAS.items():
                if not hasattr(torch.ops.torchvision, name):
                    torch.library.define(f"torchvision::{name}", schema)


sys.meta_path.insert(0, DeclareFirst())


def __getattr__(name: str) -> ModuleType:
    if name != "torchvision":
        raise AttributeError(name)
    import torchvision

    return torchvision
