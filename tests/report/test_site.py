"""Static pages: whole without a network, equations as MathML."""

import html
import json
import re

import nbformat
import pytest

from fedclust.report import claimpages, notebooks, site
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

CLAIM = """
[[claim]]
id = "c2"
short = "A above B"
text = "A is above B"
where = "Table I"
figure = ["text"]
uncontrolled = "a test"
[[claim.test]]
label = "A minus B"
expr = "a - b"
paper = 0.1
"""

MADE = ["claims", "claims.json", "index.html", "quick"]


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
        nbformat.v4.new_output(
            "display_data",
            {"image/png": PIXEL, "text/plain": "<Image>"},
            metadata={"image/png": {"alt": "Figure 1: a curve", "width": 9}, "figure": "fig1"},
        ),
        nbformat.v4.new_output(
            "display_data",
            {"text/markdown": '<a id="fig1"></a>**Figure 1.** A curve'},
            metadata={"figure": "fig1"},
        ),
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
    body = page[page.index("</nav>") :]
    places = [body.index(each) for each in ("<details>", "hidden at first", "</details>", "shown")]
    assert places == sorted(places) and "code: figure 1" in body
    assert (
        'href="quick/dcfl.html"' in index.read_text() and "Title &lt;dcfl&gt;" in index.read_text()
    )
    assert '<a href="dcfl-fig1.svg"><img alt="Figure 1: a curve" src="data:' in page
    assert "<figcaption>" in page
    assert (index.parent / "quick" / "dcfl-fig1.png").read_bytes() == b"png"


def test_the_first_page_has_the_picture_of_all_tests(executed):
    assert "forest.png" not in site.build(["quick", "paper"], executed).read_text()
    (executed / "figures" / "forest.png").write_bytes(b"a picture")
    index = site.build(["quick", "paper"], executed)
    assert (index.parent / "forest.png").read_bytes() == b"a picture"
    assert f'alt="{site.FOREST[:80]}' in index.read_text()


def test_long_cells_keep_a_readable_width():
    made = site.page("t", f"<td>short</td><td>{'a' * 60}</td><td>{'b' * 200}</td>")
    assert (
        "<td>short" in made and '<td class="long">aaa' in made and '<td class="longer">bbb' in made
    )


def test_old_pages_are_replaced(executed):
    index = site.build(["quick"], executed)
    (index.parent / "stale.html").write_text("old")
    assert site.build(["quick"], executed) == index
    assert sorted(path.name for path in index.parent.iterdir()) == MADE
    assert [path.name for path in index.parent.parent.iterdir()] == ["site"]


def test_the_result_of_a_sweep_of_parameters_is_not_on_the_page(executed):
    path = executed / "replications" / "executed" / "quick" / "dcfl.ipynb"
    book = nbformat.read(path, as_version=4)
    given = nbformat.v4.new_code_cell("secret = 1", metadata={"tags": ["injected-parameters"]})
    book.cells.insert(0, given)
    nbformat.write(book, path)
    assert "secret" not in site.converted(path)


def test_a_page_per_claim(executed):
    toml = executed / "papers" / "dcfl.toml"
    toml.write_text(toml.read_text().replace("claim = []\n", "", 1) + CLAIM)
    measures = executed / "figures" / "paper" / "dcfl" / "measures.csv"
    measures.write_text("seed,a,b\n0,0.7,0.5\n1,0.8,0.5\n")
    (executed / "figures/paper/dcfl/run.json").write_text('{"commit": "0123456789abcdef"}')
    verdicts = executed / "figures" / "paper" / "dcfl" / "verdicts.json"
    content = json.loads(verdicts.read_text())
    next(c for c in content["claims"] if c["id"] == "c2")["because"] = "B is too *high*."
    verdicts.write_text(json.dumps(content))
    out = site.build(["quick", "paper"], executed).parent
    page = (out / "claims" / "dcfl-c2.html").read_text()
    assert page.count("<p>B is too <em>high</em>.</p>") == 1  # of the tier whose verdict says it
    assert "Tier paper: not reproduced" in page and "Tier quick: in part" in page
    assert "<td>0.200</td>" in page and "<td>0.300</td>" in page  # seed by seed
    assert "0123456789" in page and "make dcfl TIER=paper" in page
    assert "A minus B: <code>a - b</code> (printed 0.1, h = 0.050)" in page
    badge = (out / "claims" / "dcfl-c2.svg").read_text()
    assert 'aria-label="dcfl c2: not reproduced"' in badge
    rows = json.loads((out / "claims.json").read_text())
    assert [(row["id"], row["verdicts"]) for row in rows] == [
        ("c2", {"quick": "in part", "paper": "not reproduced"})
    ]
    index = (out / "index.html").read_text()
    assert 'href="claims/dcfl-c2.html"' in index and "not-reproduced:checked" in index
    for text in (page, index):
        assert not re.search(r"<img(?![^>]* alt=\"[^\"])", text)


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_of_text_have_the_contrast_that_wcag_aa_asks_for():
    for color in claimpages.COLORS.values():
        assert 1.05 / (luminance(color) + 0.05) >= 4.5
    for color in re.findall(r"[{;]color:(#\w{6})", site.STYLE):
        assert (luminance("#f2f6fa") + 0.05) / (luminance(color) + 0.05) >= 4.5


def test_no_text_is_smaller_than_12_pixels():
    sizes = [float(size) * 16 for size in re.findall(r"font-size:(\.\d+)rem", site.STYLE)]
    assert sizes and min(sizes) >= 12
