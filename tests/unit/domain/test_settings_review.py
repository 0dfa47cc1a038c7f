"""What a reading of the tree leads to: a new version, a rejection, nothing; and who is told what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from governor.domain.decisions import Severity
from governor.domain.settings import SETTINGS, as_texts
from governor.domain.settings_review import (
    KEEP_EDITS,
    MAX_ERRORS,
    Place,
    Rejection,
    Review,
    Snapshot,
    TreeReading,
    Writer,
    names_in_question,
    person,
    review,
    texts_to_validate,
)
from governor.shell.settings import parse_tree

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PLACE = Place("test", "eu-west-1")
DEFAULTS = {spec.name: spec.default for spec in SETTINGS}
LAST = Snapshot(3, NOW - timedelta(hours=5), "schema", DEFAULTS)
ALICE = "arn:aws:sts::123456789012:assumed-role/Admin/alice"


def read(texts: Mapping[str, str], last: Snapshot | None = LAST) -> TreeReading:
    settings, errors = parse_tree(texts_to_validate(texts, last))
    wrong = {error.name for error in errors}
    return TreeReading(texts, {n: t for n, t in as_texts(settings).items() if n not in wrong}, errors)


def look(
    texts: Mapping[str, str],
    last: Snapshot | None = LAST,
    rejection: Rejection | None = None,
    now: datetime = NOW,
    version: int = 2,
) -> Review:
    reading = read(texts, last)
    names = names_in_question(reading, last)
    writers = {n: Writer(ALICE, now - timedelta(seconds=20), version, DEFAULTS.get(n)) for n in names}
    return review(reading, last, rejection, writers, PLACE, now)


def with_(**texts: str) -> dict[str, str]:
    return {**DEFAULTS, **{f"budget/{name.replace('_', '-')}": text for name, text in texts.items()}}


def test_the_first_reading_is_version_one_without_edits_and_tells_nobody() -> None:
    found = look(with_(limit_usd="5000"), last=None)
    assert found.snapshot is not None
    assert (found.snapshot.version, found.snapshot.read_at) == (1, NOW)
    assert found.snapshot.values["budget/limit-usd"] == "5000"
    assert (found.snapshot.edits, found.changes, found.message, found.rejected) == ({}, (), None, False)


def test_the_same_tree_again_is_nothing_new() -> None:
    assert look(DEFAULTS) == Review()


def test_another_way_to_write_the_same_value_is_nothing_new() -> None:
    assert look(with_(stop_percent="95.0", limit_usd="0001000.00")) == Review()


def test_a_changed_value_is_a_new_version_and_one_information() -> None:
    found = look(with_(stop_percent="60", warn_percent="50"))
    assert found.snapshot is not None
    assert found.snapshot.version == 4
    assert found.snapshot.values["budget/stop-percent"] == "60"
    assert found.message is not None
    assert found.message.severity is Severity.INFO
    assert found.message.subject == "[Governor test] 2 settings changed"
    found = look(with_(stop_percent="90"))
    assert found.message is not None
    assert found.message.subject == "[Governor test] budget/stop-percent changed from 95 to 90"
    first = "assumed-role/Admin/alice changed budget/stop-percent from 95 to 90 at 2026-11-20 11:59 UTC."
    assert found.message.body.startswith(first)
    assert "held for 10 minutes" in found.message.body
    assert "governor settings set budget/stop-percent 95 --stage test" in found.message.body


def test_an_edit_is_in_force_from_the_reading_and_remembers_what_it_replaced() -> None:
    found = look(with_(stop_percent="90"))
    assert found.snapshot is not None
    (edit,) = found.snapshot.edits.values()
    assert (edit.at, edit.by, edit.before, edit.version) == (NOW, ALICE, "95", 2)
    assert edit.written_at == NOW - timedelta(seconds=20)


def test_edits_are_kept_for_a_day() -> None:
    first = look(with_(stop_percent="90")).snapshot
    later = look(with_(stop_percent="90", grace_minutes="1"), last=first, now=NOW + KEEP_EDITS).snapshot
    assert later is not None
    assert set(later.edits) == {"budget/stop-percent", "budget/grace-minutes"}
    after = NOW + KEEP_EDITS + timedelta(seconds=1)
    later = look(with_(stop_percent="90", grace_minutes="1"), last=first, now=after).snapshot
    assert later is not None
    assert set(later.edits) == {"budget/grace-minutes"}


def test_a_writer_who_cannot_be_found_does_not_hold_an_edit_up() -> None:
    found = review(read(with_(stop_percent="90")), LAST, None, {}, PLACE, NOW)
    assert found.snapshot is not None
    assert found.snapshot.edits["budget/stop-percent"].at == NOW
    assert found.message is not None
    assert "somebody unknown changed budget/stop-percent from 95 to 90" in found.message.body


def test_a_setting_that_this_version_adds_has_its_default_until_it_is_seeded() -> None:
    older = replace(LAST, values={n: t for n, t in DEFAULTS.items() if n != "budget/grace-minutes"})
    assert look(older.values, last=older) == Review()
    found = look(with_(grace_minutes="7"), last=older, version=1)
    assert found.snapshot is not None
    assert found.snapshot.edits == {}
    assert found.message is not None
    assert found.message.subject == "[Governor test] new setting budget/grace-minutes = 7"
    found = look(with_(grace_minutes="7"), last=older, version=2)
    assert found.snapshot is not None
    assert set(found.snapshot.edits) == {"budget/grace-minutes"}


def test_a_parameter_that_an_earlier_version_knew_is_left_alone() -> None:
    older = replace(LAST, values={**DEFAULTS, "budget/old": "1"})
    assert look({**DEFAULTS, "budget/old": "1"}, last=older) == Review()
    found = look({**with_(grace_minutes="7"), "budget/old": "2"}, last=older)
    assert found.snapshot is not None
    assert found.snapshot.values["budget/old"] == "2"
    assert [change.name for change in found.changes] == ["budget/grace-minutes"]


def test_an_empty_or_half_seeded_tree_at_first_is_waited_for() -> None:
    assert look({}, last=None) == Review(waiting=True)
    assert look({"budget/limit-usd": "1"}, last=None) == Review(waiting=True)


def test_a_wrong_value_at_first_pages_because_nothing_is_guarded() -> None:
    found = look(with_(limit_usd="many"), last=None)
    assert found.message is not None
    assert found.message.severity is Severity.PAGE
    assert "does nothing until it is corrected" in found.message.body
    assert found.snapshot is None


def test_a_rejection_names_parameter_value_rule_and_writer_and_what_waits() -> None:
    found = look(with_(warn_percent="99", limit_usd="2000"))
    assert found.snapshot is None
    assert found.rejected
    assert found.message is not None
    assert found.message.severity is Severity.WARN
    assert found.message.subject.startswith("[Governor test] setting not used: budget/warn-percent is '99'")
    body = found.message.body
    assert "budget/warn-percent is '99': must be below budget/stop-percent (95).\n  Written by assumed-role" in body
    assert "Version 3 of 2026-11-20 07:00 UTC stays in force" in body
    assert (
        "wait until that is corrected:\n  assumed-role/Admin/alice changed budget/limit-usd from 1000 to 2000" in body
    )
    assert "governor settings set budget/warn-percent 80 --stage test" in body
    assert dict(found.message.facts)["parameter"] == "/governor/test/budget/warn-percent"


def test_the_writer_of_a_lowered_stop_is_named_when_the_warning_is_above_it() -> None:
    found = look(with_(stop_percent="60"))
    assert found.message is not None
    assert "budget/warn-percent is '80': must be below budget/stop-percent (60)." in found.message.body
    assert "alice changed budget/stop-percent from 95 to 60 at 2026-11-20 11:59 UTC." in found.message.body
    assert "governor settings set budget/stop-percent 95 --stage test" in found.message.body


def test_a_deleted_setting_is_rejected_and_can_be_put_back_by_one_command() -> None:
    found = look({n: t for n, t in DEFAULTS.items() if n != "budget/limit-usd"})
    assert found.rejected
    assert found.message is not None
    assert "budget/limit-usd is missing: it must be a number from 1" in found.message.body
    assert "--name /governor/test/budget/limit-usd --type String --value 1000" in found.message.body


def test_a_misspelt_setting_is_rejected_and_named_with_the_right_one() -> None:
    found = look({**DEFAULTS, "budget/stop-percnt": "60"})
    assert found.message is not None
    assert "did you mean budget/stop-percent?" in found.message.subject + found.message.body
    assert "aws ssm delete-parameter --region eu-west-1 --name /governor/test/budget/stop-percnt" in found.message.body


def test_one_bad_state_is_told_once_and_a_different_one_again() -> None:
    first = look(with_(limit_usd="x"))
    assert look(with_(limit_usd="x"), rejection=first.rejection, now=NOW + timedelta(hours=9)) == Review(rejected=True)
    second = look(with_(limit_usd="y"), rejection=first.rejection, now=NOW + timedelta(minutes=1))
    assert second.message is not None
    assert second.rejection is not None
    assert second.rejection.since == NOW
    back = look(with_(limit_usd="x"), rejection=second.rejection, now=NOW + timedelta(minutes=2))
    assert back.message is None
    assert back.rejection is not None
    assert back.rejection.errors[0].value == "x"
    waiting = look(with_(limit_usd="x", grace_minutes="9"), rejection=back.rejection, now=NOW + timedelta(minutes=3))
    assert waiting.message is not None
    assert "changed budget/grace-minutes from 5 to 9" in waiting.message.body


def test_valid_again_is_told_once_and_the_same_mistake_later_is_told_anew() -> None:
    bad = look(with_(limit_usd="x"))
    good = look(DEFAULTS, rejection=bad.rejection, now=NOW + timedelta(minutes=1))
    assert good.snapshot is None
    assert good.message is not None
    assert good.message.severity is Severity.INFO
    assert "valid again" in good.message.subject
    assert "budget/limit-usd is 'x'" in good.message.body
    assert look(DEFAULTS, rejection=good.rejection, now=NOW + timedelta(minutes=2)) == Review()
    again = look(with_(limit_usd="x"), rejection=good.rejection, now=NOW + timedelta(minutes=3))
    assert again.message is not None
    assert bad.message is not None
    assert again.message.key != bad.message.key


def test_valid_again_with_a_change_is_one_message() -> None:
    bad = look(with_(limit_usd="x"))
    good = look(with_(limit_usd="2000"), rejection=bad.rejection, now=NOW + timedelta(minutes=1))
    assert good.snapshot is not None
    assert good.rejection is not None
    assert not good.rejection.open
    assert good.message is not None
    assert good.message.body.startswith("The settings are valid again.")
    assert "from 1000 to 2000" in good.message.body


def test_thousands_of_odd_parameters_make_one_message_that_can_be_sent() -> None:
    found = look({**DEFAULTS, **{f"budget/odd-{n}": "x" * 4096 for n in range(3000)}})
    assert found.message is not None
    assert found.message.subject == "[Governor test] 3000 settings are wrong"
    assert f"and {3000 - MAX_ERRORS} more" in found.message.body
    assert len(found.message.body) < 64_000
    assert found.rejection is not None
    assert len(found.rejection.errors) == MAX_ERRORS


@given(st.dictionaries(st.sampled_from(sorted(DEFAULTS)) | st.text(max_size=20), st.text(max_size=20)), st.booleans())
def test_any_tree_gives_either_a_version_or_a_rejection_or_nothing_new(tree: dict[str, str], first: bool) -> None:
    last = None if first else LAST
    found = look({**DEFAULTS, **tree}, last)
    assert found == look({**DEFAULTS, **tree}, last)
    assert not (found.snapshot is not None and found.rejected)
    if found.rejected:
        assert found.message is not None
        assert len(found.message.subject) <= 100
        assert found.message.subject.isascii()
    after = look({**DEFAULTS, **tree}, found.snapshot or last, found.rejection, NOW + timedelta(minutes=1))
    assert (after.snapshot, after.rejection, after.message) == (None, None, None)
    assert after.rejected is found.rejected


def test_people_are_named_by_the_readable_end_of_their_arn() -> None:
    assert person(ALICE) == "assumed-role/Admin/alice"
    assert person("arn:aws:iam::123456789012:user/bob") == "user/bob"
    assert person("N/A") == "N/A"
    assert person("") == "somebody unknown"
