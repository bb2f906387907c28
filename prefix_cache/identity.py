"""The name of a page outside this process: a SHA-256 chain over all its content depends on.

    kv_root = H(layout)    tenant root = H(kv_root, salt)    page i = H(page i - 1, its tokens)

Equal identities mean equal KV. Every value is hashed with its type and length, so that no two
different inputs run together. Nothing here is computed unless someone asks for it.
"""

import hashlib
import hmac
import struct
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache

IDENTITY_VERSION = 1

Field = bytes | str | int | None


@dataclass(frozen=True, slots=True)
class KvLayout:
    """What, besides tokens and tenant, decides the bytes of a KV page.

    `model_hash` and `tokenizer_hash` are content hashes of the files. `rope` describes base,
    scaling and dimensions in one canonical string. `sliding_window` None = full attention.
    `layout_version` changes whenever the order of bytes inside a page does.
    """

    model_hash: str
    tokenizer_hash: str
    rope: str
    kv_dtype: str
    layout_version: int
    scale_scheme: str = "none"
    sliding_window: int | None = None
    adapter_id: str | None = None
    adapter_version: str | None = None
    tp_rank: int = 0
    tp_size: int = 1

    def digest(self) -> bytes:
        """The root that starts every page's chain in a runtime with this layout."""
        return _hash("radixgate kv layout", IDENTITY_VERSION, *astuple(self))


def tenant_salt(secret: bytes, tenant: str, cache_salt: str | None) -> bytes:
    """The namespace of a tenant's pages. The client's own salt narrows it and cannot leave it.

    Raises ValueError for an empty secret: anyone could then compute every tenant's salt.
    """
    if not secret:
        raise ValueError("the secret of tenant salts is empty; give at least one byte")
    message = _frame("radixgate tenant salt", IDENTITY_VERSION, tenant, cache_salt)
    return hmac.new(secret, message, hashlib.sha256).digest()


def tenant_root(kv_root: bytes, namespace: bytes) -> bytes:
    """The root of one tenant's chains."""
    return _hash("radixgate tenant root", kv_root, namespace)


def stored_root(kv_root: bytes, payload_format: str, codec_version: int) -> bytes:
    """In place of `kv_root` for pages outside the device. They hold what came out of a format
    that may not be exact, and so are other pages than those that were computed without it."""
    return _hash("radixgate stored pages", kv_root, payload_format, codec_version)


def page_identity(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The identity of the page that holds `token_ids` after the page (or root) `parent`."""
    return packed_page_identity(parent, struct.pack(f">{len(token_ids)}I", *token_ids))


def packed_page_identity(parent: bytes, tokens: bytes) -> bytes:
    """The same of tokens that are packed as big-endian unsigned 32-bit numbers."""
    parts = (_PAGE_FRAME, _header(b"b", len(parent)), parent, _header(b"b", len(tokens)), tokens)
    return hashlib.sha256(b"".join(parts)).digest()


def page_identities(root: bytes, token_ids: Sequence[int], *, page_size: int) -> Iterator[bytes]:
    """The identities of the full pages of a sequence, each computed when it is asked for."""
    parent = root
    for end in range(page_size, len(token_ids) + 1, page_size):
        parent = page_identity(parent, token_ids[end - page_size : end])
        yield parent


def _hash(*fields: Field) -> bytes:
    return hashlib.sha256(_frame(*fields)).digest()


def _frame(*fields: Field) -> bytes:
    """All fields in one byte string from which they could be read back."""
    return b"".join(_frame_field(field) for field in fields)


def _frame_field(field: Field) -> bytes:
    payload = field if isinstance(field, bytes) else repr(field).encode()
    return _header(_TYPE_TAGS[type(field)], len(payload)) + payload


@lru_cache(maxsize=64)
def _header(type_tag: bytes, num_bytes: int) -> bytes:
    return struct.pack(">cQ", type_tag, num_bytes)


_TYPE_TAGS: dict[type, bytes] = {bytes: b"b", str: b"s", int: b"i", type(None): b"n"}
_PAGE_FRAME = _frame("radixgate page")
