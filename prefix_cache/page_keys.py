"""Short names of prefixes inside this process, so that "was this page here once" is one look-up.

A name is a hash, and no token is compared: it decides nothing but what an explanation says.
"""

from array import array


def root_key(namespace: bytes) -> int:
    """The name of a namespace's empty prefix."""
    return hash(namespace)


def page_key(parent_key: int, page: bytes) -> int:
    """The name of the prefix that ends with `page` (packed tokens) behind the one before it."""
    return hash((parent_key, page))


class PageKeys:
    """The name of the prefix that ends with each cached full page, 8 bytes a page of the pool."""

    def __init__(self, num_pages: int) -> None:
        self._keys = array("q", bytes(8 * num_pages))

    def behind(self, namespace: bytes, page_id: int | None) -> int:
        """Of the prefix that ends with this page; None = of the empty one."""
        return root_key(namespace) if page_id is None else self._keys[page_id]

    def enter(
        self, namespace: bytes, before: int | None, *, pages: list[bytes], page_ids: list[int]
    ) -> None:
        """Notes full pages that follow page `before`."""
        key = self.behind(namespace, before)
        for page, page_id in zip(pages, page_ids, strict=True):
            key = self._keys[page_id] = page_key(key, page)
