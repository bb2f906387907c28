"""What came before the items of a request: the responses it goes on with, and items that it only
names."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from gateway.errors import InvalidRequest, NotFound
from gateway.response_store import ResponseStore, StoredResponse
from gateway.schemas.response_items import Item, response_id_of
from gateway.schemas.responses_input import ItemReference

# Each is one look into the store. A conversation of more turns is sent as items.
MAX_LINKS = 256
_PREVIOUS = "previous_response_id"


@dataclass(frozen=True, slots=True)
class Before:
    """What a request goes on with, oldest first, and the response that it all began with."""

    items: tuple[Item, ...] = ()
    first_id: str | None = None


class ResponseHistory:
    """`max_bytes` bounds what a chain of responses may hold in all; so it does for the responses
    that items are named of, and for these items, each as often as it is named."""

    def __init__(self, store: ResponseStore, *, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes

    async def before(self, tenant: str, response_id: str | None) -> "Before":
        """Input and output of the response and of all that it went on with.

        Raises: NotFound for a response that is not kept; InvalidRequest for a chain that is too
        long; Overloaded as the store does.
        """
        chain: list[StoredResponse] = []
        first_id = response_id
        num_bytes = 0
        while response_id is not None:
            stored = await self._store.get(tenant, response_id)
            if stored is None:
                raise _unknown_previous(response_id)
            chain.append(stored)
            num_bytes += stored.num_bytes
            if len(chain) > MAX_LINKS or num_bytes > self._max_bytes:
                raise _too_long()
            first_id, response_id = response_id, stored.previous
        return Before(tuple(i for stored in reversed(chain) for i in stored.items()), first_id)

    async def resolved(
        self, tenant: str, entries: Sequence[Item | ItemReference]
    ) -> tuple[Item, ...]:
        """The items, with those in place that were only named.

        Raises: NotFound naming the reference that leads to nothing; InvalidRequest, Overloaded.
        """
        responses: dict[str, dict[str, _Named]] = {}
        items: list[Item] = []
        num_read = num_named = 0
        for index, entry in enumerate(entries):
            if not isinstance(entry, ItemReference):
                items.append(entry)
                continue
            response_id = response_id_of(entry.id) or ""
            if response_id not in responses:
                if len(responses) == MAX_LINKS:
                    raise _too_many_references()
                stored = await self._store.get(tenant, response_id)
                num_read += 0 if stored is None else stored.num_bytes
                self._check(num_read)
                responses[response_id] = _named_items(stored)
            named = responses[response_id].get(entry.id)
            if named is None:
                raise _unknown_item(entry.id, param=f"input[{index}].id")
            # A few bytes name what may have megabytes.
            num_named += named.num_bytes
            self._check(num_named)
            items.append(named.item)
        return tuple(items)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise _too_much_named()


@dataclass(frozen=True, slots=True)
class _Named:
    """An item that may be named, and its length as JSON."""

    item: Item
    num_bytes: int


def _named_items(stored: StoredResponse | None) -> dict[str, _Named]:
    if stored is None:
        return {}
    return {item.id: _Named(item, len(msgspec.json.encode(item))) for item in stored.items()}


def _unknown_previous(response_id: str) -> NotFound:
    return NotFound(
        f"Previous response with id '{response_id[:100]}' not found.",
        code="previous_response_not_found",
        param=_PREVIOUS,
    )


def _unknown_item(item_id: str, *, param: str) -> NotFound:
    return NotFound(
        f"Item with id '{item_id[:100]}' not found.", code="item_not_found", param=param
    )


def _too_long() -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{_PREVIOUS}': it goes on with more than {MAX_LINKS} responses, or with"
        " more than one request may hold. Send the conversation as 'input'.",
        param=_PREVIOUS,
    )


def _too_many_references() -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for 'input': it refers to items of more than {MAX_LINKS} responses.",
        param="input",
    )


def _too_much_named() -> InvalidRequest:
    return InvalidRequest(
        "Invalid value for 'input': it refers to items that hold more than one request may.",
        param="input",
    )
