"""Bearer keys and the tenants they stand for."""

import pytest

from gateway.auth import ApiKeys
from gateway.errors import Unauthorized

SECRET = b"secret"


def test_without_keys_everyone_is_the_same_tenant() -> None:
    keys = ApiKeys([], secret=SECRET)
    assert keys.tenant_of(None) == keys.tenant_of("Bearer anything") == ""


def test_tenants_differ_by_key_and_by_server() -> None:
    keys = ApiKeys(["one", "two"], secret=SECRET)
    tenant = keys.tenant_of("Bearer one")
    assert tenant == keys.tenant_of("bearer one")
    assert tenant != keys.tenant_of("Bearer two")
    assert tenant != ApiKeys(["one"], secret=b"other").tenant_of("Bearer one")
    assert "one" not in tenant


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "one", "Basic one", "Bearer ones", "Bearer \udcff"]
)
def test_everything_else_is_refused_without_repeating_it(header: str | None) -> None:
    with pytest.raises(Unauthorized) as caught:
        ApiKeys(["one"], secret=SECRET).tenant_of(header)
    assert "ones" not in caught.value.message
    assert caught.value.headers() == {"www-authenticate": "Bearer"}
