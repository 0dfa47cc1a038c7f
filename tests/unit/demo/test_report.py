"""The report: whole, escaped, self-contained, and true about what failed."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from demo.report import SECTIONS, render
from demo.story import Story
from tests.unit.demo.small_story import small_restoring, small_story

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


def section_of(page: str, name: str) -> str:
    """The HTML of one section."""
    return page[page.index(f'<section id="{name}"') :].partition("</section>")[0]


def cells_after(section: str, words: str) -> list[str]:
    """The texts of the cells that follow some words in their row."""
    row = section[section.index(words) :].partition("</tr>")[0]
    return [re.sub("<[^>]+>", "", cell) for cell in re.findall("<td[^>]*>(.*?)</td>", row)]


def test_how_a_machine_was_stopped_stands_beside_its_reason(page: str) -> None:
    assert cells_after(page, '<th scope="row">trainer')[-1] == "managed, standard, in scope; into standby, then stopped"


def test_the_group_is_shown_at_each_moment_with_sizes_members_and_the_count_that_shows_a_replacement(page: str) -> None:
    group = section_of(page, "group")
    assert cells_after(group, "before the stop") == ["1", "2", "3", "worker-1: InService", "4"]
    assert cells_after(group, "stopped &lt;all&gt;") == ["0", "1", "3", "worker-1: Standby", "4"]
    assert "workers &lt;1&gt;" in group


def test_an_override_is_shown_with_its_command_what_it_printed_and_what_ended_it(page: str) -> None:
    override = section_of(page, "override")
    assert "<b>$ governor override --because &#x27;a &lt;release&gt;&#x27;</b>\nIt keeps 3 &amp; more." in override
    assert "exit code 0, 1.2 s of real time" in override
    assert cells_after(override, ">Held<") == ["24 h 00 min", "11 runs of the guard in the minutes that were played"]
    assert cells_after(override, ">Stop calls meanwhile<")[0] == "0"
    assert "AWS Budgets reports $31,512.25, above $31,300.00" in override
    assert cells_after(override, ">Stopped<")[1].startswith("6 min after its end")


def test_a_restore_is_shown_with_the_command_of_the_mail_and_the_time_of_each_machine(page: str) -> None:
    restore = section_of(page, "restore")
    in_mail = "governor restore --decision &#x27;guard_budget@2027-01-16T22:05:00+00:00&#x27; --stage local"
    assert f"<code>{in_mail}</code>" in restore
    assert f"<b>$ {in_mail} --yes --no-wait</b>\n2 instances accepted: &lt;ids&gt;" in restore
    assert "16 days later" in restore
    assert cells_after(restore, ">trainer <")[2:] == ["1 min", "6 min", "7 min", "8 min"]
    assert cells_after(restore, ">worker-1 <")[1:] == ["unknown", "1 min", "2 min", "3 min", "4 min"]
    assert "members in service 5 min after the command" in restore
    assert '<dd class="big">7 min</dd>' in page
    assert "2 machines by one governor restore; booting takes 2 to 6 min here" in page


def test_a_machine_that_did_not_come_back_is_marked_and_no_time_is_made_up_for_it() -> None:
    story: Story = replace(small_story(), restoring=replace(small_restoring(missing=True), group_after_seconds=None))
    page = render(story)
    restore = section_of(page, "restore")
    assert cells_after(restore, ">worker-1 <")[2:] == ["not in time", "2 min", "not in time", "not in time"]
    assert '<td class="number failed" data-label="Running">not in time' in restore
    assert "had not its sizes back in time" in restore
    assert '<dd class="big">not in time</dd>' in page
