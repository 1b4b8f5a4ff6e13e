"""The executed notebooks as static pages that need no network: equations are MathML, images are in the page."""

import html
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedclust.paths import root
from fedclust.report import papers
from fedclust.report.scoreboard import scoreboard, there, verdicts

STYLE = """
body{font:16px/1.55 system-ui,sans-serif;color:#1a1a1a;margin:0 auto;padding:1rem;max-width:58rem}
body{overflow-wrap:break-word}h1{line-height:1.2}h2{margin-top:2.2rem;border-bottom:1px solid #ddd}a{color:#0059a3}
img{max-width:100%;height:auto}pre{overflow-x:auto;background:#f6f6f6;padding:.6rem;font-size:.82rem;line-height:1.4}
table{display:block;overflow-x:auto;max-width:100%;border-collapse:collapse;font-size:.88rem;margin:.8rem 0}
th,td{border:1px solid #ddd;padding:.25rem .5rem;text-align:left;vertical-align:top;min-width:2.5rem;max-width:26rem}
th{background:#f6f6f6}td.long{min-width:15rem}td.longer{min-width:24rem}
math{font-size:1.08em}math[display=block]{overflow-x:auto;overflow-y:hidden;padding:.3rem 0}
summary{cursor:pointer;font-size:.8rem;color:#555}.anchor-link,.prompt{display:none}footer{color:#666;margin-top:3rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:1rem}
.cards img{width:100%;height:9rem;object-fit:contain;border:1px solid #e4e4e4}
"""
CODE = """{% extends 'basic/index.html.j2' %}
{% block input %}<details><summary>code</summary>{{ super() }}</details>{% endblock input %}
{% block in_prompt %}{% endblock in_prompt %}{% block output_prompt %}{% endblock output_prompt %}"""


def mathml(tex: str, display: str = "inline") -> str:
    """An equation that browsers draw by themselves; TeX as it stands where it cannot be turned."""
    from latex2mathml.converter import convert

    plain = tex.replace("{aligned}", "{align*}").replace(
        r"\arg", r"\mathrm{arg}"
    )  # what the converter does not know
    plain = re.sub(r"\\operatorname\*?", r"\\mathrm", plain)
    try:
        bar = '<mo stretchy="false"{}>&#x0007C;</mo>'  # bars enclose: no space on either side
        return convert(plain, display=display).replace(
            bar.format(""), bar.format(' lspace="0" rspace="0"')
        )
    except Exception:  # the converter fails in many ways
        return f"<code>{html.escape(tex)}</code>"


def exporter() -> Any:
    """nbconvert's basic pages, equations as MathML, code folded."""
    from nbconvert import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def block_math(self, body: str) -> str:
            return mathml(body, "block")

        def inline_math(self, body: str) -> str:
            return mathml(body)

        def latex_environment(self, name: str, body: str) -> str:
            return mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")

    made = HTMLExporter(raw_template=CODE)
    made.register_filter(
        "markdown2html", lambda text: MarkdownWithMath(renderer=Renderer(escape=False)).render(text)
    )
    return made


def page(title: str, body: str) -> str:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    )
    head += f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    for letters, name in (
        (200, "longer"),
        (60, "long"),
    ):  # sentences keep their width, the table scrolls
        body = re.sub(rf"<td>(?=[^<]{{{letters}}})", f'<td class="{name}">', body)
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def build(tiers: Sequence[str], base: Path | None = None) -> Path:
    """The pages, in build/site; the old ones are replaced at once when the new ones are complete."""
    import nbformat
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    base = base or root()
    out = base / "build" / "site"
    fresh = out.with_name(f"site.{os.getpid()}")
    convert, parts = (
        exporter(),
        ["<h1>fedclust: five papers on clustered federated learning, replicated</h1>"],
    )
    for tier in there(base, tiers):
        (fresh / tier).mkdir(parents=True, exist_ok=True)
        board = scoreboard(base, tier, "{tier}/{key}.html")
        parts.append(
            f"<h2>Tier {tier}</h2>{MarkdownWithMath(renderer=IPythonRenderer(escape=False)).render(board)}"
        )
        for found in verdicts(base, tier):
            key = found["paper"]
            about = papers.load(key, base / "papers" / f"{key}.toml").about
            notebook = base / "replications" / "executed" / tier / f"{key}.ipynb"
            if not notebook.exists():
                continue
            try:
                body, _ = convert.from_notebook_node(nbformat.read(notebook, as_version=4))
            except Exception as error:  # what is no notebook can fail anywhere
                shutil.rmtree(fresh)
                again = f"make it again with make {key} TIER={tier}"
                raise ValueError(
                    f"{notebook} is no notebook ({type(error).__name__}): {again}"
                ) from error
            back = '<footer><a href="../index.html">all papers</a></footer>'
            (fresh / tier / f"{key}.html").write_text(
                page(about["title"], body + back), encoding="utf-8"
            )
            parts.append(f'<h3><a href="{tier}/{key}.html">{html.escape(about["title"])}</a></h3>')
            parts.append(f"<p>{html.escape(about['claim'])}</p><div class=cards>")
            figures = (base / "figures" / tier / key).glob("fig*.png")
            for figure in sorted(
                figures, key=lambda path: ("extra" in path.name, len(path.name), path.name)
            ):
                shutil.copy(figure, fresh / tier / f"{key}-{figure.name}")
                source = f"{tier}/{key}-{figure.name}"
                parts.append(
                    f'<a href="{source}"><img loading=lazy src="{source}" alt="{key} {figure.stem}"></a>'
                )
            parts.append("</div>")
    fresh.mkdir(parents=True, exist_ok=True)
    (fresh / "index.html").write_text(page("fedclust", "".join(parts)), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    os.replace(fresh, out)
    return out / "index.html"
