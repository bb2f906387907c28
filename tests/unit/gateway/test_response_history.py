"""Responses that are kept, and the conversations that go on with them."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest, NotFound, Overloaded
from gateway.generation import TextDelta, Usage
from gateway.kept_bytes import KeepLimits, KeptBytes
from gateway.redis_link import RedisUnavailable
from gateway.response_history import MAX_LINKS, Before, ResponseHistory
from gateway.response_store import RedisResponses, ResponseStore, StoredResponse
from gateway.schemas.answer import AnswerHead
from gateway.schemas.response_items import InputText, Item, MessageItem, output_id
from gateway.schemas.responses_input import ItemReference
from gateway.schemas.responses_presenter import ResponsesPresenter
from gateway.schemas.responses_request import ResponsesRequest
from gateway.schemas.responses_response import begun_response

Entry = Item | ItemReference


class FakeRedis(RedisResponses):
    """A dict, which may be out of reach."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], bytes] = {}
        self.is_down = False

    def _check(self) -> None:
        if self.is_down:
            raise RedisUnavailable("down")

    async def put(self, tenant: str, response_id: str, value: bytes) -> None:
        self._check()
        self.values[tenant, response_id] = value

    async def get(self, tenant: str, response_id: str) -> bytes | None:
        self._check()
        return self.values.get((tenant, response_id))

    async def pop(self, tenant: str, response_id: str) -> bool:
        self._check()
        return self.values.pop((tenant, response_id), None) is not None


def memory(**limits: Any) -> KeptBytes:
    return KeptBytes(KeepLimits(**{"max_values": 999, "max_bytes": 10**6, "ttl_s": 9, **limits}))


def name(number: int) -> str:
    return f"resp_{number:032x}"


def asked(number: int, text: str) -> MessageItem:
    return MessageItem(f"msg_{number:032x}_i0", "completed", "user", [InputText(text)])


def stored(number: int, *, previous: str | None = None) -> StoredResponse:
    """A response to "Q" that says "A", each with its number."""
    head = AnswerHead(name(number), created=1, model="m", system_fingerprint="", num_choices=1)
    request = ResponsesRequest.model_validate({"model": "m", "input": "hi"})
    presenter = ResponsesPresenter(begun_response(head, request, is_kept=True))
    choice = presenter.new_choice()
    choice.add(TextDelta(0, f"A{number}"))
    body = presenter.body([choice], Usage(1, 1, 0))
    return StoredResponse.of(body, [asked(number, f"Q{number}")], previous=previous)


def texts(items: tuple[Item, ...]) -> list[str]:
    messages = [item for item in items if isinstance(item, MessageItem)]
    return [part.text for item in messages for part in item.content if not hasattr(part, "refusal")]


@pytest.fixture
def redis() -> FakeRedis:
    return FakeRedis()


async def chain_of(length: int, store: ResponseStore) -> str:
    for number in range(length):
        previous = name(number - 1) if number else None
        await store.put("t", name(number), stored(number, previous=previous))
    return name(length - 1)


async def test_a_chain_is_told_from_its_beginning() -> None:
    store = ResponseStore(memory())
    last = await chain_of(3, store)
    before = await ResponseHistory(store, max_bytes=10**6).before("t", last)
    assert texts(before.items) == ["Q0", "A0", "Q1", "A1", "Q2", "A2"]
    assert before.first_id == name(0)


async def test_nothing_comes_before_a_first_request() -> None:
    assert await ResponseHistory(ResponseStore(memory()), max_bytes=1).before("t", None) == Before()


@pytest.mark.parametrize("gone", [name(0), name(2), "resp_1", "a" * 500])
async def test_a_missing_link_is_named(gone: str) -> None:
    store = ResponseStore(memory())
    last = await chain_of(3, store)
    await store.pop("t", gone)
    start = last if gone == name(0) else gone
    with pytest.raises(NotFound) as caught:
        await ResponseHistory(store, max_bytes=10**6).before("t", start)
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"
    assert gone[:100] in caught.value.message


async def test_a_chain_is_bounded_in_links() -> None:
    store = ResponseStore(memory())
    history = ResponseHistory(store, max_bytes=10**6)
    last = await chain_of(MAX_LINKS + 1, store)
    assert len((await history.before("t", name(MAX_LINKS - 1))).items) == 2 * MAX_LINKS
    with pytest.raises(InvalidRequest) as caught:
        await history.before("t", last)
    assert caught.value.param == "previous_response_id"


async def test_a_chain_is_bounded_in_bytes() -> None:
    store = ResponseStore(memory())
    last = await chain_of(3, store)
    size = stored(0).num_bytes
    assert (await ResponseHistory(store, max_bytes=3 * size).before("t", last)).items
    with pytest.raises(InvalidRequest):
        await ResponseHistory(store, max_bytes=3 * size - 1).before("t", last)


async def test_references_lead_to_input_and_output_of_kept_responses() -> None:
    store = ResponseStore(memory())
    await chain_of(1, store)
    said, own = output_id("message", name(0), 0), asked(7, "new")
    entries: list[Entry] = [ItemReference(id=said), own, ItemReference(id=asked(0, "").id)]
    resolved = await ResponseHistory(store, max_bytes=10**6).resolved("t", entries)
    assert texts(resolved) == ["A0", "new", "Q0"]


@pytest.mark.parametrize(
    "item_id",
    [output_id("message", name(0), 1), output_id("message", name(9), 0), "msg_1", "x" * 250],
)
async def test_a_reference_that_leads_nowhere_is_named(item_id: str) -> None:
    store = ResponseStore(memory())
    await chain_of(1, store)
    entries: list[Entry] = [asked(1, "q"), ItemReference(id=item_id)]
    with pytest.raises(NotFound) as caught:
        await ResponseHistory(store, max_bytes=10**6).resolved("t", entries)
    assert (caught.value.code, caught.value.param) == ("item_not_found", "input[1].id")


async def test_another_tenants_items_lead_nowhere() -> None:
    store = ResponseStore(memory())
    await chain_of(1, store)
    entries = [ItemReference(id=output_id("message", name(0), 0))]
    with pytest.raises(NotFound):
        await ResponseHistory(store, max_bytes=1).resolved("other", entries)


async def test_references_are_bounded() -> None:
    history = ResponseHistory(ResponseStore(memory()), max_bytes=10**6)
    await chain_of(MAX_LINKS + 1, history._store)
    entries = [ItemReference(id=output_id("message", name(i), 0)) for i in range(MAX_LINKS + 1)]
    with pytest.raises(InvalidRequest, match="more than"):
        await history.resolved("t", entries)


async def test_an_item_counts_as_often_as_it_is_named() -> None:
    store = ResponseStore(memory())
    await store.put("t", name(0), stored(0))
    history = ResponseHistory(store, max_bytes=10 * stored(0).num_bytes)
    reference = ItemReference(id=asked(0, "").id)
    assert len(await history.resolved("t", [reference] * 10)) == 10
    with pytest.raises(InvalidRequest) as caught:
        await history.resolved("t", [reference] * 1000)
    assert caught.value.param == "input"


async def test_the_responses_that_items_are_named_of_are_bounded_in_bytes() -> None:
    store = ResponseStore(memory())
    await chain_of(3, store)
    entries = [ItemReference(id=output_id("message", name(i), 0)) for i in range(3)]
    size = stored(0).num_bytes
    assert len(await ResponseHistory(store, max_bytes=3 * size).resolved("t", entries)) == 3
    with pytest.raises(InvalidRequest):
        await ResponseHistory(store, max_bytes=3 * size - 1).resolved("t", entries)


@pytest.mark.parametrize(
    "value",
    [
        b"garbage",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"response": {"output": [1]}, "input": []}',
        b'{"response": {"output": []}, "input": {}}',
        b'{"response": 1, "input": []}',
    ],
)
async def test_what_no_server_wrote_into_redis_is_no_response(
    redis: FakeRedis, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    redis.values["t", name(1)] = value
    assert await ResponseStore(memory(), redis).get("t", name(1)) is None
    assert "no response" in caplog.text


async def test_redis_keeps_what_it_can_be_given(redis: FakeRedis) -> None:
    inside = memory()
    store = ResponseStore(inside, redis)
    await store.put("t", name(1), stored(1))
    assert inside.num_values == 0
    got = await store.get("t", name(1))
    assert got is not None
    assert got.input_items() == [asked(1, "Q1")]
    assert await store.get("other", name(1)) is None
    assert await store.pop("t", name(1))
    assert await store.get("t", name(1)) is None


async def test_without_redis_a_response_is_kept_in_memory(redis: FakeRedis) -> None:
    store = ResponseStore(memory(), redis)
    redis.is_down = True
    await store.put("t", name(1), stored(1))
    assert await store.get("t", name(1)) is not None
    redis.is_down = False
    assert await store.get("t", name(1)) is not None
    assert await store.pop("t", name(1))
    assert not await store.pop("t", name(1))


async def test_deleted_responses_do_not_come_back_from_a_redis_that_took_them_too_late(
    redis: FakeRedis,
) -> None:
    store = ResponseStore(memory(), redis)
    redis.is_down = True
    await store.put("t", name(1), stored(1))
    redis.is_down = False
    await ResponseStore(memory(), redis).put("t", name(1), stored(1))
    assert await store.pop("t", name(1))
    assert await store.get("t", name(1)) is None


async def test_what_is_in_memory_is_deleted_while_redis_is_down(redis: FakeRedis) -> None:
    store = ResponseStore(memory(), redis)
    redis.is_down = True
    await store.put("t", name(1), stored(1))
    assert await store.pop("t", name(1))


async def test_what_may_be_in_a_redis_that_is_down_is_not_called_unknown(redis: FakeRedis) -> None:
    store = ResponseStore(memory(), redis)
    await store.put("t", name(1), stored(1))
    redis.is_down = True
    with pytest.raises(Overloaded):
        await store.get("t", name(1))
    with pytest.raises(Overloaded):
        await store.pop("t", name(1))
    assert await store.get("t", "resp_of_somebody") is None


async def test_a_response_too_large_to_keep_is_said_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = ResponseStore(memory(max_bytes=10))
    await store.put("t", name(1), stored(1))
    assert await store.get("t", name(1)) is None
    assert "no room" in caplog.text


async def test_a_store_that_is_off_asks_no_redis_either(redis: FakeRedis) -> None:
    store = ResponseStore(memory(max_values=0), redis)
    assert not store.is_on
    redis.values["t", name(1)] = b"{}"
    assert await store.get("t", name(1)) is None
