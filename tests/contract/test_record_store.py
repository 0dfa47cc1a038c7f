"""One suite for the state table: on the fake, and on DynamoDB as moto has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from moto import mock_aws

from governor.aws.state_table import DynamoDbStateTable
from governor.ports import ConflictError, Key, Lease, LeaseHeldError, Record, RecordStore, UnreadableError, Write
from tests.fakes.records import InMemoryRecords

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ATTRIBUTES = [("pk", "HASH"), ("sk", "RANGE")]


def _dynamodb() -> RecordStore:
    dynamodb: Any = boto3.client("dynamodb", "eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
    dynamodb.create_table(
        TableName="state",
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in ATTRIBUTES],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in ATTRIBUTES],
        BillingMode="PAY_PER_REQUEST",
    )
    return DynamoDbStateTable(dynamodb, "state")


MAKERS: dict[str, Callable[[], RecordStore]] = {"fake": InMemoryRecords, "dynamodb": _dynamodb}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    with mock_aws():
        yield MAKERS[request.param]()


def a_record(sk: str = "a", pk: str = "p", **more: Any) -> Record:
    return Record(Key(pk, sk), **{"body": {"sk": sk}, **more})


def test_a_record_comes_back_as_it_was_put(store: RecordStore) -> None:
    body = {"text": "ä\u0000 \U0001f600", "number": 1.5, "none": None, "list": [1, {"x": []}], "empty": ""}
    record = Record(Key("p", "a"), body, outbox="run", sequence="2026", expires_at=1_800_000_000)
    store.commit([Write(record)])
    assert store.get(Key("p", "a")) == record
    assert store.get(Key("p", "b")) is None
    assert store.get(Key("q", "a")) is None


def test_optional_attributes_stay_away(store: RecordStore) -> None:
    store.put_all([a_record()])
    found = store.get(Key("p", "a"))
    assert found is not None
    assert (found.outbox, found.sequence, found.expires_at) == (None, None, None)


def test_a_stored_body_does_not_follow_its_source(store: RecordStore) -> None:
    body: dict[str, Any] = {"list": [1]}
    store.put_all([a_record(body=body)])
    body["list"].append(2)
    found = store.get(Key("p", "a"))
    assert found is not None
    assert found.body == {"list": [1]}


def test_query_keeps_to_partition_and_prefix_in_the_order_of_the_sort_key(store: RecordStore) -> None:
    names = ["v#00000010", "v#00000002", "v#00000001", "w#1", "V#1", "v#é"]
    store.put_all([a_record(name) for name in names] + [a_record("v#00000003", pk="other")])
    ordered = ["v#00000001", "v#00000002", "v#00000010", "v#é"]
    assert [r.key.sk for r in store.query("p", "v#")] == ordered
    assert [r.key.sk for r in store.query("p", "v#", newest_first=True)] == ordered[::-1]
    assert [r.key.sk for r in store.query("p", "v#", newest_first=True, limit=2)] == ordered[::-1][:2]
    assert len(store.query("p")) == 6
    assert store.query("nothing") == []


def test_query_reads_every_page(store: RecordStore) -> None:
    store.put_all([a_record(f"{number:04d}", body={"text": "x" * 20_000}) for number in range(120)])
    assert [r.key.sk for r in store.query("p")] == [f"{number:04d}" for number in range(120)]
    assert len(store.query("p", limit=100)) == 100


def test_present_names_what_exists_of_more_than_a_hundred_keys(store: RecordStore) -> None:
    store.put_all([a_record(str(number)) for number in range(130)])
    asked = [Key("p", str(number)) for number in range(0, 260, 2)]
    assert store.present([*asked, asked[0]]) == frozenset(Key("p", str(number)) for number in range(0, 130, 2))
    assert store.present([]) == frozenset()


def test_put_all_overwrites(store: RecordStore) -> None:
    store.put_all([a_record(body={"n": 1})])
    store.put_all([a_record(body={"n": 2})])
    found = store.get(Key("p", "a"))
    assert found is not None
    assert found.body == {"n": 2}


def test_absent_refuses_a_second_write_and_nothing_of_that_transaction_is_there(store: RecordStore) -> None:
    store.commit([Write(a_record(body={"n": 1}), "absent")])
    with pytest.raises(ConflictError):
        store.commit([Write(a_record("b")), Write(a_record(body={"n": 2}), "absent")])
    assert store.get(Key("p", "b")) is None
    found = store.get(Key("p", "a"))
    assert found is not None
    assert found.body == {"n": 1}


@pytest.mark.parametrize(
    ("there", "new", "allowed"),
    [("2", "3", True), ("2", "2", True), ("2", "1", False), (None, "1", True), ("2", None, False)],
)
def test_newer_refuses_an_older_sequence(store: RecordStore, there: str | None, new: str | None, allowed: bool) -> None:
    store.commit([Write(a_record(sequence=there), "newer")] if there else [Write(a_record())])
    write = Write(a_record(sequence=new, body={"n": 2}), "newer")
    if allowed:
        store.commit([write])
    elif new is not None:
        with pytest.raises(ConflictError):
            store.commit([write])
    found = store.get(Key("p", "a"))
    assert found is not None
    assert (found.body == {"n": 2}) is allowed


def test_a_transaction_takes_a_hundred_items_and_no_more(store: RecordStore) -> None:
    lease = store.take_lease("l", "me", NOW, 60)
    store.commit([Write(a_record(str(number))) for number in range(99)], lease)
    with pytest.raises(ValueError, match="more than one transaction"):
        store.commit([Write(a_record(str(number))) for number in range(100)], lease)
    store.commit([Write(a_record(str(number))) for number in range(100)])
    with pytest.raises(ValueError, match="more than one transaction"):
        store.commit([Write(a_record(str(number))) for number in range(101)])


def test_an_empty_commit_does_nothing(store: RecordStore) -> None:
    store.commit([], Lease("l", "me", 7, NOW))
    assert store.query("p") == []


def test_a_lease_is_held_until_its_end_and_then_free(store: RecordStore) -> None:
    first = store.take_lease("l", "a", NOW, 60)
    assert (first.fence, first.until) == (1, NOW + timedelta(seconds=60))
    with pytest.raises(LeaseHeldError):
        store.take_lease("l", "b", NOW + timedelta(seconds=59, microseconds=999_999), 60)
    assert store.take_lease("other", "b", NOW, 60).fence == 1
    assert store.take_lease("l", "b", NOW + timedelta(seconds=60), 60).fence == 2


def test_the_holder_renews_its_lease_under_a_new_fence(store: RecordStore) -> None:
    first = store.take_lease("l", "a", NOW, 60)
    second = store.take_lease("l", "a", NOW + timedelta(seconds=1), 60)
    assert second.fence == first.fence + 1
    with pytest.raises(ConflictError):
        store.commit([Write(a_record())], first)
    store.commit([Write(a_record())], second)


def test_a_write_under_a_lost_lease_is_refused(store: RecordStore) -> None:
    lost = store.take_lease("l", "a", NOW, 60)
    held = store.take_lease("l", "b", NOW + timedelta(seconds=61), 60)
    with pytest.raises(ConflictError):
        store.commit([Write(a_record())], lost)
    assert store.get(Key("p", "a")) is None
    store.commit([Write(a_record())], held)


def test_a_write_under_a_lease_that_never_was_is_refused(store: RecordStore) -> None:
    with pytest.raises(ConflictError):
        store.commit([Write(a_record())], Lease("l", "a", 1, NOW))


def test_a_released_lease_is_free_at_once_and_a_lost_one_is_left_alone(store: RecordStore) -> None:
    first = store.take_lease("l", "a", NOW, 60)
    store.release_lease(first)
    second = store.take_lease("l", "b", NOW + timedelta(seconds=1), 60)
    store.release_lease(first)
    with pytest.raises(LeaseHeldError):
        store.take_lease("l", "c", NOW + timedelta(seconds=3), 60)
    store.release_lease(Lease("never", "a", 1, NOW))
    assert second.fence == 2


def test_a_record_of_a_newer_version_is_refused(store: RecordStore) -> None:
    store.put_all([a_record(version=99)])
    with pytest.raises(UnreadableError):
        store.get(Key("p", "a"))
    with pytest.raises(UnreadableError):
        store.query("p")
