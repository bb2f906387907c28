"""Reads the key file: hashed keys, the tenant that each belongs to, and what it may do.

All of a file counts or nothing of it: an error is one line that names the file, the line, the key
and the field, and never repeats what could be a secret.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

import yaml

from gateway.accounts import ALL_MODELS, AccountLimits, Role

MAX_BYTES = 4 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z_]{1,40}")
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")
_QUOTA = "cache_quota_mb"
_LIMITS = ("requests_per_minute", "tokens_per_minute", "max_concurrent", _QUOTA)
_INTEGER = re.compile(r"[1-9][0-9_]{0,19}")
MAX_LIMIT = 10**12
_YAML = "tag:yaml.org,2002:"
# libyaml's parser where PyYAML was built with it; some ten times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class KeyFileError(Exception):
    """The file cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key of the file. `digest` is the SHA-256 of the key's bytes; `tenant` is the name as it
    was written, `limits` are those of the tenant. Tenants of one `cache_group` share a cache."""

    digest: bytes
    tenant: str
    role: Role
    models: tuple[str, ...]
    limits: AccountLimits
    cache_group: str | None = None


def read_key_file(path: Path) -> tuple[KeyEntry, ...]:
    """Raises: KeyFileError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise KeyFileError(f"{path}: it is larger than {MAX_BYTES} bytes")
    try:
        return parse_keys(raw)
    except KeyFileError as error:
        raise KeyFileError(f"{path}, {error}") from None


def parse_keys(raw: bytes) -> tuple[KeyEntry, ...]:
    """Raises: KeyFileError, which does not know the file's name."""
    root = _Fields(_compose(raw), where="the file", known=("defaults", "keys"))
    defaults = _Defaults.of(root.values.get("defaults"))
    if "keys" not in root.values:
        root.fail("expected a field 'keys' with a list of keys")
    keys = root.values["keys"]
    if not isinstance(keys, yaml.SequenceNode):
        _fail(keys, "'keys'", "expected a list of keys")
    given = [_Given.of(node, index) for index, node in enumerate(keys.value, start=1)]
    _check_unique(given)
    groups = _groups_by_tenant(given)
    limits = _limits_by_tenant(given)
    _share_quotas(given, groups, limits)
    return tuple(
        KeyEntry(
            digest=one.digest,
            tenant=one.tenant,
            role=one.role,
            models=defaults.models if one.models is None else one.models,
            limits=AccountLimits(**{**defaults.limits, **limits[one.tenant]}),
            cache_group=groups.get(one.tenant),
        )
        for one in given
    )


def _compose(raw: bytes) -> yaml.Node:
    """The file as a tree that knows its lines. Nothing in it is executed or expanded."""
    try:
        node = yaml.compose(raw.decode(), Loader=_Loader)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise KeyFileError(f"line {line}: it is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise KeyFileError(f"line {line}: {error.problem or 'it is not YAML'}") from None
    except yaml.YAMLError:
        raise KeyFileError("line 1: it has characters that YAML does not allow") from None
    except RecursionError:
        raise KeyFileError("line 1: it is nested too deeply") from None
    if node is None:
        raise KeyFileError("line 1: it is empty; expected a field 'keys' with a list of keys")
    return node


class _Fields:
    """A mapping whose field names are known and unique."""

    def __init__(self, node: yaml.Node, *, where: str, known: tuple[str, ...]) -> None:
        self.node = node
        self.where = where
        self.values: dict[str, yaml.Node] = {}
        if not isinstance(node, yaml.MappingNode):
            self.fail("expected fields, each with a name and a value")
        for name_node, value in node.value:
            name = str(name_node.value) if isinstance(name_node, yaml.ScalarNode) else ""
            if name not in known:
                shown = f" {name!r}" if _NAME.fullmatch(name) else ""  # it may be a key
                _fail(name_node, where, f"unknown field{shown}; known: {', '.join(known)}")
            if name in self.values:
                _fail(name_node, where, f"the field {name!r} is there twice")
            self.values[name] = value

    def take(self, name: str, read: "Callable[[yaml.Node, str], Any]", default: Any) -> Any:
        node = self.values.get(name)
        return default if node is None else read(node, f"{self.where}, {name!r}")

    def limits(self) -> dict[str, int | None]:
        """Those that are given, None among them."""
        return {
            name: _limit(self.values[name], f"{self.where}, {name!r}")
            for name in _LIMITS
            if name in self.values
        }

    def fail(self, problem: str) -> NoReturn:
        _fail(self.node, self.where, problem)


@dataclass(frozen=True, slots=True)
class _Defaults:
    limits: Mapping[str, int | None]
    models: tuple[str, ...] = ALL_MODELS

    @classmethod
    def of(cls, node: yaml.Node | None) -> "_Defaults":
        if node is None:
            return cls({})
        fields = _Fields(node, where="'defaults'", known=(*_LIMITS, "models"))
        return cls(fields.limits(), fields.take("models", _models, ALL_MODELS))


@dataclass(frozen=True, slots=True)
class _Given:
    """What one entry says itself."""

    node: yaml.Node
    where: str
    digest: bytes
    tenant: str
    role: Role
    models: tuple[str, ...] | None
    limits: Mapping[str, int | None]
    cache_group: str | None

    @classmethod
    def of(cls, node: yaml.Node, index: int) -> "_Given":
        where = f"key {index}"
        known = ("hash", "tenant", "role", "models", "cache_group", *_LIMITS)
        fields = _Fields(node, where=where, known=known)
        for name in ("hash", "tenant"):
            if name not in fields.values:
                fields.fail(f"the field {name!r} is missing")
        return cls(
            node=node,
            where=where,
            digest=fields.take("hash", _digest, b""),
            tenant=fields.take("tenant", _name, ""),
            role=fields.take("role", _role, "user"),
            models=fields.take("models", _models, None),
            limits=fields.limits(),
            cache_group=fields.take("cache_group", _name, None),
        )


def _check_unique(given: list[_Given]) -> None:
    seen: dict[bytes, _Given] = {}
    for one in given:
        other = seen.setdefault(one.digest, one)
        if other is not one:
            _fail(one.node, f"{one.where}, 'hash'", f"{other.where} has the same")


def _limits_by_tenant(given: list[_Given]) -> dict[str, dict[str, int | None]]:
    """A tenant's limits may stand with any of its keys, with several if they are equal."""
    found: dict[str, dict[str, tuple[int | None, str]]] = {}
    for one in given:
        of_tenant = found.setdefault(one.tenant, {})
        for name, value in one.limits.items():
            known, where = of_tenant.setdefault(name, (value, one.where))
            if known != value:
                problem = f"{where} of the same tenant says {_shown(known)}, this {_shown(value)}"
                _fail(one.node, f"{one.where}, {name!r}", problem)
    return {
        tenant: {name: value for name, (value, _) in limits.items()}
        for tenant, limits in found.items()
    }


def _groups_by_tenant(given: list[_Given]) -> dict[str, str]:
    """A tenant's group may stand with any of its keys, as its limits may."""
    found: dict[str, tuple[str, str]] = {}
    for one in given:
        if one.cache_group is None:
            continue
        known, where = found.setdefault(one.tenant, (one.cache_group, one.where))
        if known != one.cache_group:
            problem = f"{where} of the same tenant says {known!r}, this {one.cache_group!r}"
            _fail(one.node, f"{one.where}, 'cache_group'", problem)
    return {tenant: group for tenant, (group, _) in found.items()}


def _share_quotas(
    given: list[_Given], groups: Mapping[str, str], limits: dict[str, dict[str, int | None]]
) -> None:
    """One cache has one quota: that which any tenant of a group says counts for all of them."""
    found: dict[str, tuple[int | None, str]] = {}
    for one in given:
        group = groups.get(one.tenant)
        if group is None or _QUOTA not in one.limits:
            continue
        known, where = found.setdefault(group, (one.limits[_QUOTA], one.where))
        if known != one.limits[_QUOTA]:
            quota = _shown(one.limits[_QUOTA])
            problem = f"{where} of the same cache_group says {_shown(known)}, this {quota}"
            _fail(one.node, f"{one.where}, {_QUOTA!r}", problem)
    for tenant, group in groups.items():
        if group in found:
            limits[tenant][_QUOTA] = found[group][0]


def _digest(node: yaml.Node, where: str) -> bytes:
    match = _HASH.fullmatch(_text(node, where))
    if match is None:  # it may be a key: it is not repeated
        _fail(node, where, "expected sha256: and 64 hex digits, from `radixgate key hash`")
    return bytes.fromhex(match[1])


def _name(node: yaml.Node, where: str) -> str:
    name = _text(node, where)
    if not name.isprintable() or not name.strip() or len(name) > 128:
        _fail(node, where, "expected a name of at most 128 printable characters")
    return name


def _role(node: yaml.Node, where: str) -> Role:
    given = _text(node, where)
    for role in get_args(Role):
        if given == role:
            return role  # type: ignore[no-any-return]
    _fail(node, where, f"expected one of {', '.join(get_args(Role))}")


def _models(node: yaml.Node, where: str) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        _fail(node, where, "expected a list of model ids or patterns such as 'org/*'")
    return tuple(_text(item, where) for item in node.value)


def _limit(node: yaml.Node, where: str) -> int | None:
    if node.tag == f"{_YAML}null":
        return None
    # Of YAML's integers the decimal ones: 010 is eight there, and 1:30 ninety.
    if node.tag == f"{_YAML}int" and _INTEGER.fullmatch(node.value):
        value = int(node.value.replace("_", ""))
        if value <= MAX_LIMIT:
            return value
    _fail(node, where, f"expected a whole number from 1 to {MAX_LIMIT}, or null for no limit")


def _text(node: yaml.Node, where: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag != f"{_YAML}str" or not node.value:
        _fail(node, where, "expected text; quote what looks like a number or a yes")
    return str(node.value)


def _shown(limit: int | None) -> str:
    return "no limit" if limit is None else str(limit)


def _fail(node: yaml.Node, where: str, problem: str) -> NoReturn:
    raise KeyFileError(f"line {node.start_mark.line + 1}, {where}: {problem}")
