"""The site: a page per paper and tier, a page per claim, an index; files that need no network.

nbconvert makes a notebook's page. Equations are MathML, images are in the page.
"""

import html
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedclust.paths import root
from fedclust.report import claimpages, markup, papers, plainly, scoreboard
from fedclust.report.words import shown

STYLE = """
:root{color-scheme:light}
body{font:16px/1.55 system-ui,sans-serif;color:#1a1a1a;margin:0 auto;padding:1rem;max-width:58rem}
body{overflow-wrap:break-word}h1{line-height:1.2}a{color:#0059a3}
h2{margin-top:2.2rem;border-bottom:1px solid #ddd}img{max-width:100%;height:auto}
pre{overflow-x:auto;background:#f6f6f6;padding:.6rem;font-size:.82rem;line-height:1.4}
blockquote{margin:1rem 0;padding:.4rem 1rem;background:#f2f6fa;border-left:4px solid #0059a3}
table{display:block;overflow-x:auto;max-width:100%;border-collapse:collapse}
table{font-size:.88rem;margin:.8rem 0}th{background:#f6f6f6}
th,td{border:1px solid #ddd;padding:.25rem .5rem;text-align:left;vertical-align:top}
th,td{min-width:2.5rem;max-width:26rem}td.long{min-width:12rem}td.longer{min-width:18rem}
figure{margin:1.2rem 0 .4rem}figcaption{font-size:.92rem}.small{font-size:.82rem;color:#555}
.said{font-size:.92rem;border-left:3px solid #ccc;padding-left:.8rem}.said ul{padding-left:0}
.said li{list-style:none}.claim{border:1px solid #ddd;border-radius:6px;padding:.2rem 1rem}
.claim{margin:.8rem 0}math{font-size:1.25em}nav{font-size:.92rem}nav ul{columns:16rem}
math[display=block]{overflow-x:auto;overflow-y:hidden;padding:.3rem 0}
summary{cursor:pointer;font-size:.85rem;color:#555}.anchor-link,.prompt{display:none}
footer{color:#555;margin-top:3rem}.badge{vertical-align:middle}
@media(max-width:40rem){.claim{padding:.1rem .6rem}.claim td,.claim th{padding:.15rem .3rem}}
@media print{details,nav{display:none}a{color:inherit}}
"""
CODE = """{% extends 'basic/index.html.j2' %}
{% block input %}<a id="{{ cell.metadata.get('place', '') }}"></a>
<details><summary>{{ cell.metadata.get('said', 'code') }}</summary>
{{ super() }}</details>{% endblock input %}
{% block in_prompt %}{% endblock in_prompt %}
{% block output_prompt %}{% endblock output_prompt %}"""
HIDDEN = {"parameters", "injected-parameters"}  # tags of cells that a page leaves out
SOURCES = {  # files next to the figures, and what a link to them is called
    "measures.csv": "measures (CSV)",
    "scores.csv": "scores (CSV)",
    "records.parquet": "records (Parquet)",
    "run.json": "run (JSON)",
}
LONG = {200: "longer", 60: "long"}  # letters of a cell: sentences keep their width
ANCHOR = re.compile(r'<a id="((?:fig|table)[\w-]*)"></a>')
ORDER = ("dcfl", "ocfl", "fedac", "joint", "cafa")  # of papers; new ones follow
FOREST = (
    "Every test of every claim: 0 is no effect, 1 is the size that the paper printed or, in the "
    "lower part, the smallest size that counts; hollow marks are outside the paper's regime"
)


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


# --- the whole ------------------------------------------------------------------------------------


def build(tiers: Sequence[str], base: Path | None = None) -> Path:
    """The pages, in build/site; they replace the old ones when all are complete."""
    base = base or root()
    out = base / "build" / "site"
    fresh = out.with_name(f"site.{os.getpid()}")
    there = scoreboard.there(base, tiers)
    try:
        fresh.mkdir(parents=True)
        for tier in there:
            (fresh / tier).mkdir()
            keys = [book["paper"] for book in scoreboard.verdicts(base, tier)]
            for key in [*keys, papers.COMPARISON]:
                paper_page(base, fresh, tier, key, there)
        rows = claimpages.write(base, fresh, there, lambda title, text: page(title, rendered(text)))
        (fresh / "claims.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        if forest(base).exists():
            shutil.copy(forest(base), fresh)
        (fresh / "index.html").write_text(index(base, there, rows), encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        os.replace(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return out / "index.html"


def index(base: Path, tiers: Sequence[str], rows: list[dict[str, Any]]) -> str:
    """Findings, then the scoreboard, then every claim, which can be filtered by its verdict."""
    parts = ["# fedclust: five papers on clustered federated learning, replicated", ""]
    found = {
        book["paper"]: (tier, book) for tier in tiers for book in scoreboard.verdicts(base, tier)
    }
    for key in sorted(found, key=lambda key: (*ORDER, key).index(key)):
        book = found[key][1]
        about = papers.load(key, base / "papers" / f"{key}.toml").about
        said = "".join(book.get("findings", [])[:1]) or about["claim"]
        links = [f"[tier {t}]({t}/{key}.html)" for t in tiers if (key, t) in names(base, tiers)]
        parts += [f"## {scoreboard.called(base, key)}", "", f"**{said}**", ""]
        parts += [
            f"{html.escape(about['title'])}. {', '.join(about['authors'])}, {about['year']}.",
            "",
        ]
        parts += [f"Pages: {', '.join([*links, f'[reading notes](notes/{key}.html)'])}", ""]
    if pages := [t for t in tiers if (papers.COMPARISON, t) in names(base, tiers)]:
        links = [f"[tier {t}]({t}/{papers.COMPARISON}.html)" for t in pages]
        parts += ["## When does clustering pay?", ""]
        parts += [*(f"- {said}" for said in scoreboard.compared(base)[1]), ""]
        parts += [
            f"All methods on one bench, with controls, and an article: {', '.join(links)}",
            "",
        ]
    if board := scoreboard.rows(base):
        parts += ["## Scoreboard", "", scoreboard.board(board, "paper/{key}.html"), ""]
    if forest(base).exists():
        parts += [f"[![{FOREST}](forest.png)](forest.png)", "", f"*{FOREST}.*", ""]
    text = rendered("\n".join(parts))
    return page("fedclust", text + claimpages.listed(rows))


def forest(base: Path) -> Path:
    """The picture of all tests (report/forest.py), if a report has drawn it."""
    return base / "figures" / "forest.png"


def names(base: Path, tiers: Sequence[str]) -> set[tuple[str, str]]:
    """The papers and tiers that have a page."""
    places = {(t, f.stem): f for t in tiers for f in executed(base, t).glob("*.ipynb")}
    return {(key, tier) for tier, key in places}


def executed(base: Path, tier: str) -> Path:
    return base / "replications" / "executed" / tier


# --- a paper's page -------------------------------------------------------------------------------


def paper_page(base: Path, out: Path, tier: str, key: str, tiers: Sequence[str]) -> None:
    """Write a paper's page, its figures and its reading notes."""
    notebook = executed(base, tier) / f"{key}.ipynb"
    if not notebook.exists():
        return
    made = base / "figures" / tier / key
    for pattern in ("fig*.[sp][vn]g", "table*.csv", *SOURCES):
        for file in made.glob(pattern):
            shutil.copy(file, out / tier / f"{key}-{file.name}")
    body = converted(notebook, [name for name in SOURCES if (made / name).exists()])
    others = [t for t in tiers if t != tier and (key, t) in names(base, tiers)]
    links = ['<a href="../index.html">all papers</a>']
    links += [f'<a href="../{t}/{key}.html">the same at tier {t}</a>' for t in others]
    for article in sorted(made.glob("article.*")):
        shutil.copy(article, out / tier / f"{key}-{article.name}")
        links.append(f'<a href="{key}-{article.name}">article ({article.suffix[1:]})</a>')
    heads = re.findall(r'<h2 id="([^"]+)">(.*?)<', body)
    listed = "".join(f'<li><a href="#{at}">{name}</a></li>' for at, name in heads)
    top = f"<nav><p>{' · '.join(links)} · tier {tier}</p><details><summary>contents</summary>"
    top += f"<ul>{listed}</ul></details></nav>"
    differ = rendered(differences(base, key, tier, others))
    plain = html.escape(plainly.sentence(base, tier, key))
    links.append(f'<a href="../notes/{key}.html">reading notes and deviations</a>')
    foot = f"<footer><p>{plain}</p><p>{' · '.join(links)}</p></footer>"
    title = f"{scoreboard.called(base, key)} at tier {tier}"
    text = page(title, f"{top}{body}{differ}{foot}")
    (out / tier / f"{key}.html").write_text(text, encoding="utf-8")
    notes = base / "papers" / f"{key}.md"
    if notes.exists():
        (out / "notes").mkdir(exist_ok=True)
        text = page(f"{key}: reading notes", rendered(notes.read_text(encoding="utf-8")))
        (out / "notes" / f"{key}.html").write_text(text, encoding="utf-8")


def differences(base: Path, key: str, tier: str, others: Sequence[str]) -> str:
    """The claims whose verdict is another one at another tier."""
    here = scoreboard.known(base / "figures" / tier / key / "verdicts.json")
    parts = []
    for other in others if here else []:
        there = scoreboard.known(base / "figures" / other / key / "verdicts.json")
        lines = [
            f"| [{name}](#{name}) {claim['short']} | {shown(claim)} | {shown(there[name])} |"
            for name, claim in here.items()
            if name in there and shown(claim) != shown(there[name])
        ]
        same = len(here) - len(lines)
        parts.append(f"{same} of {len(here)} verdicts are the same at tiers {tier} and {other}.")
        if lines:
            parts += ["", f"| claim | {tier} | {other} |", "| --- | --- | --- |", *lines, ""]
    return "\n".join(parts)


def converted(notebook: Path, sources: Sequence[str] = ()) -> str:
    """nbconvert's basic page of a notebook, code folded, figures with captions and links."""
    import nbformat
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(raw_template=CODE)
    exporter.register_filter("markdown2html", rendered)
    try:
        book = nbformat.read(notebook, as_version=4)
        book.cells = [c for c in book.cells if not HIDDEN & {*c.metadata.get("tags", [])}]
        for cell in book.cells:
            if cell.cell_type == "code":
                prepare(cell, notebook.stem, sources)
        body, _ = exporter.from_notebook_node(book)
    except Exception as error:  # what is no notebook can fail anywhere
        again = f"make it again with make {notebook.stem} TIER={notebook.parent.name}"
        raise ValueError(f"{notebook} is no notebook ({type(error).__name__}): {again}") from error
    return body


def prepare(cell: Any, key: str, sources: Sequence[str]) -> None:
    """A code cell's outputs as HTML: a figure is one element with its caption and its links."""
    texts = [str(output.get("data", {}).get("text/markdown", "")) for output in cell.outputs]
    shows = dict.fromkeys(name for text in texts for name in ANCHOR.findall(text))
    cell.metadata["said"] = f"code: {', '.join(map(markup.named, shows)) or 'set-up'}"
    cell.metadata["place"] = f"code-{next(iter(shows), cell.get('id', ''))}"
    made: list[Any] = []
    for output, text in zip(cell.outputs, texts, strict=True):
        name = output.get("metadata", {}).get("figure")
        table = re.search(r'<a id="(table[\w-]*)"></a>', text)
        if "image/png" in output.get("data", {}) and name:
            output.data = {"text/html": picture(output, f"{key}-{name}", "")}
        elif name:  # the caption of the picture before it
            leads = {f"{key}-{name}.svg": "SVG", f"{key}-{name}.png": "PNG"}
            leads |= {f"{key}-{each}": SOURCES[each] for each in sources}
            leads[f"#{cell.metadata['place']}"] = "code"
            links = " ".join(f'<a href="{to}">{text}</a>' for to, text in leads.items())
            said = rendered(ANCHOR.sub("", text))
            said = said.replace("</p>", f' <span class="small">{links}</span></p>', 1)
            before = made.pop()
            output.data = {"text/html": picture(before, f"{key}-{name}", said)}
        elif text.startswith("- [c"):
            output.data = {"text/html": f'<div class="said">{rendered(text)}</div>'}
        elif table:
            link = f'<a class="small" href="{key}-{table[1]}.csv">CSV</a>'
            output.data = {"text/html": rendered(text) + link}
        made.append(output)
    cell.outputs = made


def picture(output: Any, file: str, caption: str) -> str:
    """A figure that leads to its drawing at full size."""
    known = output.data.get("text/html", "")
    image = re.search(r"<img [^>]*>", known)
    if image:
        shown = image[0]
    else:
        about = output.get("metadata", {}).get("image/png", {})
        png = "".join(output.data["image/png"].split())
        alt, width = html.escape(about.get("alt", "")), about.get("width", "")
        shown = f'<img src="data:image/png;base64,{png}" width="{width}" alt="{alt}">'
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    place = f' id="{file.partition("-")[2]}"' if caption else ""
    return f'<figure{place}><a href="{file}.svg">{shown}</a>{below}</figure>'
