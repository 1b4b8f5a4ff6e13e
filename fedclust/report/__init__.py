"""From records to pages: papers' files, verdicts, tables, figures, notebooks and the site."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclust.report.report import Report
    from fedclust.report.tables import markdown, spread

__all__ = ["Report", "markdown", "spread"]


def __getattr__(name: str) -> Any:
    """Imported when first asked for: reading a paper's file need not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'fedclust.report' has no attribute {name!r}")
    home = "report" if name == "Report" else "tables"
    return getattr(import_module(f"fedclust.report.{home}"), name)
