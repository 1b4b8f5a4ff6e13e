"""The executed notebooks as static pages that need no network.

Equations are MathML, images are in the page.
"""

import html
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from fedclust.paths import root
from fedclust.report import papers, plainly
from fedclust.report.scoreboard import board, rows, there, verdicts

STYLE = """
body{font:16px/1.55 system-ui,sans-serif;color:#1a1a1a;margin:0 auto;padding:1rem;max-width:58rem}
body{overflow-wrap:break-word}h1{line-height:1.2}a{color:#0059a3}
h2{margin-top:2.2rem;border-bottom:1px solid #ddd}img{max-width:100%;height:auto}
pre{overflow-x:auto;background:#f6f6f6;padding:.6rem;font-size:.82rem;line-height:1.4}
table{display:block;overflow-x:auto;max-width:100%;border-collapse:collapse}
table{font-size:.88rem;margin:.8rem 0}th{background:#f6f6f6}
th,td{border:1px solid #ddd;padding:.25rem .5rem;text-align:left;vertical-align:top}
th,td{min-width:2.5rem;max-width:26rem}td.long{min-width:15rem}td.longer{min-width:24rem}
math{font-size:1.08em}
math[display=block]{overflow-x:auto;overflow-y:hidden;padding:.3rem 0}
summary{cursor:pointer;font-size:.8rem;color:#555}.anchor-link,.prompt{display:none}
footer{color:#666;margin-top:3rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:1rem}
.cards img{width:100%;height:9rem;object-fit:contain;border:1px solid #e4e4e4}
"""
CODE = """{% extends 'basic/index.html.j2' %}
{% block input %}<details><summary>code</summary>{{ super() }}</details>{% endblock input %}
{% block in_prompt %}{% endblock in_prompt %}
{% block output_prompt %}{% endblock output_prompt %}"""
LONG = {200: "longer", 60: "long"}  # letters of a cell: sentences keep their width


def mathml(tex: str, display: str = "inline") -> str:
    """An equation that browsers draw; its TeX where it cannot be converted."""
    from latex2mathml.converter import convert

    known = tex.replace("{aligned}", "{align*}").replace(r"\arg", r"\mathrm{arg}")
    known = re.sub(r"\\operatorname\*?", r"\\mathrm", known)
    try:
        made = convert(known, display=display)
    except Exception:  # the converter fails in many ways
        return f"<code>{html.escape(tex)}</code>"
    bar = '<mo stretchy="false"{}>&#x0007C;</mo>'  # bars enclose: no space on either side
    return made.replace(bar.format(""), bar.format(' lspace="0" rspace="0"'))


def rendered(text: str) -> str:
    """Markdown as HTML, equations as MathML."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def block_math(self, body: str) -> str:
            return mathml(body, "block")

        def inline_math(self, body: str) -> str:
            return mathml(body)

        def latex_environment(self, name: str, body: str) -> str:
            return mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")

    return MarkdownWithMath(renderer=Renderer(escape=False)).render(text)


def page(title: str, body: str) -> str:
    head = '<meta charset="utf-8"><meta name="viewport" '
    head += 'content="width=device-width,initial-scale=1">'
    head += f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    for letters, name in LONG.items():
        body = re.sub(rf"<td>(?=[^<]{{{letters}}})", f'<td class="{name}">', body)
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def build(tiers: Sequence[str], base: Path | None = None) -> Path:
    """The pages, in build/site; they replace the old ones when all are complete."""
    base = base or root()
    out = base / "build" / "site"
    fresh = out.with_name(f"site.{os.getpid()}")
    parts = ["<h1>fedclust: five papers on clustered federated learning, replicated</h1>"]
    try:
        fresh.mkdir(parents=True)
        if found := rows(base):
            parts.append(rendered(board(found, "paper/{key}.html")))
        for tier in there(base, tiers):
            (fresh / tier).mkdir()
            parts.append(f"<h2>Tier {tier}</h2>")
            parts += [card(base, fresh, tier, book["paper"]) for book in verdicts(base, tier)]
        (fresh / "index.html").write_text(page("fedclust", "".join(parts)), encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        os.replace(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out / "index.html"


def card(base: Path, out: Path, tier: str, key: str) -> str:
    """Write a paper's page and figures. The result is its part of the first page."""
    notebook = base / "replications" / "executed" / tier / f"{key}.ipynb"
    if not notebook.exists():
        return ""
    about = papers.load(key, base / "papers" / f"{key}.toml").about
    title, link = html.escape(about["title"]), f"{tier}/{key}.html"
    back = '<a href="../index.html">all papers</a>'
    plain = html.escape(plainly.sentence(base, tier, key))
    body = f"{converted(notebook)}<footer><p>{plain}</p>{back}</footer>"
    (out / link).write_text(page(about["title"], body), encoding="utf-8")
    part = f'<h3><a href="{link}">{title}</a></h3>'
    part += f"<p>{html.escape(about['claim'])}</p><div class=cards>"
    figures = (base / "figures" / tier / key).glob("fig*.png")
    for figure in sorted(figures, key=lambda f: ("extra" in f.name, len(f.name), f.name)):
        source = f"{tier}/{key}-{figure.name}"
        shutil.copy(figure, out / source)
        image = f'<img loading=lazy src="{source}" alt="{key} {figure.stem}">'
        part += f'<a href="{source}">{image}</a>'
    return part + "</div>"


def converted(notebook: Path) -> str:
    """nbconvert's basic page of a notebook, code folded."""
    import nbformat
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(raw_template=CODE)
    exporter.register_filter("markdown2html", rendered)
    try:
        body, _ = exporter.from_notebook_node(nbformat.read(notebook, as_version=4))
    except Exception as error:  # what is no notebook can fail anywhere
        again = f"make it again with make {notebook.stem} TIER={notebook.parent.name}"
        raise ValueError(f"{notebook} is no notebook ({type(error).__name__}): {again}") from error
    return body
