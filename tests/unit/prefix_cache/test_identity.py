"""Page identities: equal content, equal name; any difference, another one."""

from dataclasses import fields, replace

import pytest

from prefix_cache.identity import (
    KvLayout,
    page_identities,
    page_identity,
    tenant_root,
    tenant_salt,
)

LAYOUT = KvLayout(
    model_hash="m1",
    tokenizer_hash="t1",
    rope="base=10000",
    kv_dtype="float32",
    layout_version=1,
)
VARIANTS = [
    replace(LAYOUT, model_hash="m2"),
    replace(LAYOUT, tokenizer_hash="t2"),
    replace(LAYOUT, rope="base=20000"),
    replace(LAYOUT, kv_dtype="bfloat16"),
    replace(LAYOUT, layout_version=2),
    replace(LAYOUT, scale_scheme="per_page"),
    replace(LAYOUT, sliding_window=4096),
    replace(LAYOUT, adapter_id="lora"),
    replace(LAYOUT, adapter_version="2"),
    replace(LAYOUT, tp_rank=1),
    replace(LAYOUT, tp_size=2),
]


def test_the_digest_is_the_same_in_every_process() -> None:
    assert LAYOUT.digest() == replace(LAYOUT).digest()
    assert LAYOUT.digest().hex() == (
        "37a065bb04e061f4a727ed1bc30c417e6c87cd0c4d336e340ccc6faa9a3c44e7"
    )


def test_every_field_of_the_layout_changes_the_digest() -> None:
    assert len(VARIANTS) == len(fields(KvLayout))
    assert len({layout.digest() for layout in [LAYOUT, *VARIANTS]}) == len(VARIANTS) + 1


def test_values_that_run_together_do_not_collide() -> None:
    one = replace(LAYOUT, model_hash="ab", tokenizer_hash="c")
    other = replace(LAYOUT, model_hash="a", tokenizer_hash="bc")
    assert one.digest() != other.digest()


def test_an_adapter_named_none_is_not_the_absence_of_one() -> None:
    assert replace(LAYOUT, adapter_id="None").digest() != LAYOUT.digest()


def test_the_type_of_a_value_counts() -> None:
    assert (
        replace(LAYOUT, adapter_id="x", adapter_version=None).digest()
        != replace(LAYOUT, adapter_id=None, adapter_version="x").digest()
    )
    assert tenant_salt(b"k", "1", None) != tenant_salt(b"k", "1", "")


def test_a_page_depends_on_all_tokens_before_it() -> None:
    root = LAYOUT.digest()
    one = list(page_identities(root, [1, 2, 3, 4], page_size=2))
    other = list(page_identities(root, [1, 9, 3, 4], page_size=2))
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_equal_prefixes_have_equal_identities_and_the_partial_page_has_none() -> None:
    root = LAYOUT.digest()
    one = list(page_identities(root, [1, 2, 3, 4, 5], page_size=2))
    other = list(page_identities(root, [1, 2, 3, 4, 6, 7], page_size=2))
    assert one == other[:2]
    assert len(set(other)) == 3


def test_identities_are_computed_one_at_a_time() -> None:
    root = LAYOUT.digest()
    chain = page_identities(root, [1, 2, -1, 4], page_size=2)
    assert next(chain) == page_identity(root, [1, 2])


def test_pages_of_another_size_have_other_identities() -> None:
    root = LAYOUT.digest()
    small = set(page_identities(root, [0] * 8, page_size=2))
    large = set(page_identities(root, [0] * 8, page_size=4))
    assert small.isdisjoint(large)


def test_tenants_have_roots_of_their_own() -> None:
    root = LAYOUT.digest()
    assert tenant_root(root, b"a") != tenant_root(root, b"b")
    assert tenant_root(root, b"a") != tenant_root(replace(LAYOUT, tp_rank=1).digest(), b"a")


def test_a_salt_belongs_to_secret_tenant_and_client_salt_together() -> None:
    salts = {
        tenant_salt(secret, tenant, cache_salt)
        for secret in (b"k1", b"k2")
        for tenant in ("acme", "acm")
        for cache_salt in (None, "", "e", "s")
    }
    assert len(salts) == 16
    assert {len(salt) for salt in salts} == {32}


def test_a_client_cannot_reach_another_tenant_with_its_salt() -> None:
    victim = tenant_salt(b"k", "victim", "shared")
    assert tenant_salt(b"k", "attacker", "shared") != victim
    assert tenant_salt(b"k", "attacker", "victim") != victim


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="secret"):
        tenant_salt(b"", "acme", None)
