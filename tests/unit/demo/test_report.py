"""The report: whole, escaped, self-contained, and true about what failed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from demo.report import SECTIONS, render
from tests.unit.demo.small_story import small_story

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """What a page is made of; notes tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.crossed: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An opening tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that closes itself."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """A closing tag."""
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)


def outline_of(page: str) -> Outline:
    """The parsed page."""
    outline = Outline()
    outline.feed(page)
    outline.close()
    return outline


@pytest.fixture(scope="module")
def page() -> str:
    return render(small_story())


def test_every_section_is_there_with_its_heading(page: str) -> None:
    for name, title in SECTIONS:
        assert f'<section id="{name}"' in page
        assert f">{title}</h2>" in page


def test_every_tag_is_closed_in_order(page: str) -> None:
    outline = outline_of(page)
    assert outline.crossed == []
    assert outline.open == []


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    outline = outline_of(page)
    assert {tag for tag, _ in outline.tags} & {"script", "img", "iframe", "object", "embed", "video"} == set()
    links = [attributes.get("href") or "" for tag, attributes in outline.tags if tag in ("a", "link")]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not [attributes for _, attributes in outline.tags if "src" in attributes or "srcset" in attributes]
    assert "url(" not in page
    assert "@import" not in page


def test_names_and_bodies_are_escaped(page: str) -> None:
    assert "<script>" not in page
    assert "Tern &amp; &lt;Audio&gt;" in page
    assert "Why: &lt;because&gt;" in page
    assert "page: &lt;stopped&gt;" in page


def test_every_table_has_a_caption_and_scoped_heads(page: str) -> None:
    assert page.count("<table") == page.count("<caption>") > 0
    heads = [attributes for tag, attributes in outline_of(page).tags if tag == "th"]
    assert heads
    assert all(attributes.get("scope") for attributes in heads)


def test_every_chart_has_a_title_a_description_and_ids_of_its_own(page: str) -> None:
    charts = [
        attributes for tag, attributes in outline_of(page).tags if tag == "svg" and attributes.get("role") == "img"
    ]
    assert len(charts) == 6
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for chart in charts:
        for name in (chart["aria-labelledby"] or "").split():
            assert name in ids


def test_an_instance_has_its_fate_and_its_reason(page: str) -> None:
    row = page[page.index('<th scope="row">trainer') :].partition("</tr>")[0]
    assert "i-0abc" in row
    assert "21.96" in row
    assert '<span class="halted">stopped</span>' in row
    assert "managed, standard, in scope" in row


def test_an_unknown_price_is_not_shown_as_zero(page: str) -> None:
    row = page[page.index("i-0def") :].partition("</tr>")[0]
    assert "unknown" in row
    assert "0.00" not in row


def test_checks_that_held_are_folded(page: str) -> None:
    assert "2 checks, all held" in page
    assert "<details open>" not in page
    assert "2 of 2" in page


def test_a_failed_check_is_open_marked_and_counted() -> None:
    page = render(small_story(failing=True))
    assert "1 of 2 checks failed" in page
    assert "<details open>" in page
    assert '<td class="failed" data-label="Held">no</td>' in page
    assert "2 checks, all held" not in page
