"""Static pages: whole without a network, equations as MathML."""

import html
import re

import nbformat
import pytest

from fedclust.report import notebooks, site
from tests.report.test_scoreboard import project  # noqa: F401

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TOML = """
key = "{}"
figure = []
claim = []
setting = []
[paper]
title = "Title <{}>"
authors = ["A"]
venue = "V"
year = 2020
claim = "It works."
"""


def test_equations_become_mathml():
    assert site.mathml(r"\frac{a}{b}").startswith("<math")
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in site.mathml(
        "x", "block"
    )
    assert "<mtable" in site.mathml(r"\begin{aligned} a &= b \\ c &= d \end{aligned}")
    assert "&#x0007C;" in site.mathml("|x|") and 'lspace="0"' in site.mathml("|x|")
    assert site.mathml(r"\left( x < y") == r"<code>\left( x &lt; y</code>"


def left_over(page):
    """What should have become mathematics, bold print or a word, in the text that people see."""
    text = re.sub(r"<(style|pre|math|code)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    return re.findall(r".{0,40}(?:\$|\*\*|\bnan\b|\bNaN\b).{0,40}", text)


@pytest.mark.parametrize("key", notebooks.keys())
def test_no_mathematics_bold_print_or_nan_is_left_in_a_papers_text(key):
    prose = [cell for cell in notebooks.read(key).cells if cell.cell_type == "markdown"]
    assert not [each for cell in prose for each in left_over(site.rendered(cell.source))]


@pytest.mark.parametrize("key", notebooks.keys())
def test_every_equation_of_the_replications_can_be_turned(key):
    prose = "\n".join(
        cell.source for cell in notebooks.read(key).cells if cell.cell_type == "markdown"
    )
    found = [a or b for a, b in re.findall(r"\$\$(.+?)\$\$|(?<![\\$])\$(.+?)\$", prose, re.DOTALL)]
    assert found
    for tex in found:
        made = site.mathml(tex)
        assert made.startswith("<math") and "\\" not in made, tex


@pytest.fixture
def executed(project):  # noqa: F811
    (project / "papers").mkdir()
    for key in ("dcfl", "joint"):
        (project / "papers" / f"{key}.toml").write_text(TOML.format(key, key))
    place = project / "replications" / "executed" / "quick"
    place.mkdir(parents=True)
    code = nbformat.v4.new_code_cell("print('hidden at first')", execution_count=1)
    code.outputs = [
        nbformat.v4.new_output("execute_result", {"text/plain": "'shown'"}, execution_count=1),
        nbformat.v4.new_output("display_data", {"image/png": PIXEL, "text/plain": "<Image>"}),
        nbformat.v4.new_output(
            "display_data", {"text/markdown": "| a | $y$ |\n|---|---|\n| 1 | 2 |"}
        ),
    ]
    prose = nbformat.v4.new_markdown_cell("# Head\n\nInline $x^2$ and\n\n$$\\sum_i x_i$$\n\nA < B")
    nbformat.write(nbformat.v4.new_notebook(cells=[prose, code]), place / "dcfl.ipynb")
    (project / "figures/quick/dcfl/fig1.png").write_bytes(b"png")
    return project


def test_pages_need_no_network_and_index_leads_to_them(executed):
    index = site.build(["quick", "paper"], executed)
    page = (index.parent / "quick" / "dcfl.html").read_text()
    for text in (index.read_text(), page):
        assert not re.search(r"<script|<link|@import|(src|href)=\"?https?:", text)
        assert "width=device-width" in text
    assert page.count("<math") == 3 and "$" not in re.sub(
        r"<style>.*?</style>", "", page, flags=re.DOTALL
    )
    assert f"data:image/png;base64,{PIXEL}" in page.replace("\n", "")
    assert (
        page.index("<details>")
        < page.index("hidden at first")
        < page.index("</details>")
        < page.index("shown")
    )
    assert (
        'href="quick/dcfl.html"' in index.read_text() and "Title &lt;dcfl&gt;" in index.read_text()
    )
    assert 'src="quick/dcfl-fig1.png"' in index.read_text()
    assert (index.parent / "quick" / "dcfl-fig1.png").read_bytes() == b"png"


def test_long_cells_keep_a_readable_width():
    made = site.page("t", f"<td>short</td><td>{'a' * 60}</td><td>{'b' * 200}</td>")
    assert (
        "<td>short" in made and '<td class="long">aaa' in made and '<td class="longer">bbb' in made
    )


def test_old_pages_are_replaced(executed):
    index = site.build(["quick"], executed)
    (index.parent / "stale.html").write_text("old")
    assert site.build(["quick"], executed) == index
    assert sorted(path.name for path in index.parent.iterdir()) == ["index.html", "quick"]
    assert [path.name for path in index.parent.parent.iterdir()] == ["site"]
