"""Every setting of the server, read once from environment and command line into one frozen object.

A setting `x` is the variable RADIXGATE_X and the flag --x; the flag wins. HOST and PORT are read
as well. A secret X may be the content of a file that RADIXGATE_X_FILE names. An empty variable
counts as absent. The list in the documentation is tested against this.
"""

import secrets
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from gateway.runtime_address import check_address
from gateway.tools.families import DialectSetting
from grammar.spec import EngineChoice
from runtime.config import CacheFormat, DeviceName, DTypeName
from runtime.messages import MAX_PIN_S

PREFIX = "RADIXGATE_"
# Variables that tell the test suite where things are; they configure no server.
TEST_PREFIX = "RADIXGATE_TEST_"
# What commands that talk to a server read; it may be set where one is started.
CLIENT_KEY_VARIABLE = "RADIXGATE_KEY"
UNPREFIXED = ("HOST", "PORT")
FILE_SUFFIX = "_FILE"
_MAX_SECRET_CHARACTERS = 1_000_000

# An exbibyte, as bytes still a number that fits in a message; ten years, which Redis takes.
MAX_TIER_MB = 1 << 40
MAX_REDIS_TTL_S = 315_360_000

KeepAliveMode = Literal["comment", "chunk", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]


class SettingsError(Exception):
    """One line naming key, value and expected type."""


def setting(default: Any, description: str, *, unit: str = "", **rules: Any) -> Any:
    """A field with its default, meaning and unit; `rules` are pydantic's bounds."""
    return Field(default, description=description, json_schema_extra={"unit": unit}, **rules)


def secret(description: str, **rules: Any) -> Any:
    """A field whose value is never printed."""
    return Field(
        description=description, json_schema_extra={"unit": "", "secret": True}, repr=False, **rules
    )


class Settings(BaseModel):
    """Settled at start, then constant. Zero turns a limit or a timeout off where it says so."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    host: str = setting("127.0.0.1", "address to listen on", min_length=1)
    port: int = setting(8000, "port to listen on; 0 = any free one", ge=0, le=65535)
    root_path: str = setting("", "path under which a proxy publishes the server, such as /llm")
    model: str | None = setting(
        None, "GGUF file, Hugging Face folder or hub id (org/name); absent = the default model"
    )
    model_dir: str | None = setting(
        None, "folder of the default model; absent = radixgate in the user's cache folder"
    )
    served_model_name: tuple[str, ...] = setting(
        (), "ids of the model in requests, the first in answers; absent = made from its file name"
    )
    model_aliases: tuple[str, ...] = setting(
        (), "names for which a served model stands in, as name=id; answers repeat the name"
    )
    dtype: DTypeName = setting("auto", "number format of the computation; float32 is exact")
    device: DeviceName = setting("auto", "where the model runs")
    max_model_len: int | None = setting(
        None,
        "longest prompt plus answer; absent = what model and memory allow",
        unit="tokens",
        ge=1,
    )
    kv_memory_mb: int = setting(
        512, "memory of the page pool for keys and values", unit="MiB", ge=1
    )
    max_running: int = setting(
        16, "sequences (choices, for each prompt) computed together", unit="sequences", ge=1
    )
    max_step_tokens: int = setting(512, "token budget of one engine step", unit="tokens", ge=1)
    watermark: float = setting(
        0.01, "share of the page pool kept free when requests are admitted", ge=0, lt=1
    )
    max_overtaking_s: float = setting(
        2.0,
        "how long requests with less to compute may overtake one that waits",
        unit="s",
        ge=0,
    )
    num_threads: int = setting(0, "threads of the computation; 0 = one per core", ge=0)
    max_queue: int = setting(
        256,
        "sequences accepted beyond max_running; more are refused with 503",
        unit="sequences",
        ge=0,
    )
    max_queue_tokens: int = setting(
        1_000_000, "prompt tokens of all accepted requests; more are refused with 503",
        unit="tokens", ge=1,
    )  # fmt: skip
    max_requests_per_key: int = setting(
        0, "sequences of one API key at a time, else 429; 0 = no limit", unit="sequences", ge=0
    )
    max_choices: int = setting(16, "largest n of a request", unit="choices", ge=1, le=128)
    api_keys: tuple[str, ...] = secret(
        "accepted bearer keys, each a tenant with a cache of its own; absent = no keys needed",
        default=(),
    )
    key_file: str | None = setting(
        None, "YAML file of hashed keys with tenants and limits, read again when it changes"
    )
    redis_url: str | None = secret(
        "a Redis that several servers share, such as redis://HOST:6379/0; absent = none",
        default=None,
        min_length=1,
    )
    cache_dir: str | None = setting(
        None, "folder in which computed prefixes outlive a restart; absent = none do", min_length=1
    )
    cache_disk_mb: int = setting(
        4096, "largest size of that folder", unit="MiB", ge=1, le=MAX_TIER_MB
    )
    cache_host_mb: int = setting(
        1024, "host memory for prefixes that a GPU's memory has no room for; 0 = none",
        unit="MiB", ge=0, le=MAX_TIER_MB,
    )  # fmt: skip
    cache_redis_url: str | None = secret(
        "a Redis in which servers of one model share computed prefixes; absent = none",
        default=None,
        min_length=1,
    )
    cache_redis_ttl_s: int = setting(
        3600,
        "how long a prefix stays in that Redis after its last use",
        unit="s",
        ge=1,
        le=MAX_REDIS_TTL_S,
    )
    cache_format: CacheFormat = setting(
        "raw", "how prefixes are kept outside the device: exactly, or in half the size"
    )
    cache_pin_share: float = setting(
        0.25, "share of the page pool that one tenant's pinned prefixes may take", ge=0, le=1
    )
    cache_max_ttl_s: float = setting(
        86400.0,
        "longest time for which a client may pin a prefix",
        unit="s",
        ge=0,
        le=MAX_PIN_S,
    )
    response_store_max: int = setting(
        1000, "responses kept in memory for previous_response_id and GET; 0 = none is", ge=0
    )
    response_store_mb: float = setting(
        64.0, "memory of kept responses; who keeps the most makes room first", unit="MiB", gt=0
    )
    response_store_ttl_s: float = setting(
        86400.0, "how long a response is kept after its last use, also in Redis", unit="s", gt=0
    )
    server_secret: str = secret(
        "secret behind the tenants' cache salts, 16 characters or more; absent = random, kept in"
        " cache_dir or else for one start",
        default_factory=lambda: secrets.token_hex(32),
        min_length=16,
    )
    cors_origins: tuple[str, ...] = setting(
        (), "origins whose pages may call the server from a browser; * = all"
    )
    trusted_proxies: tuple[str, ...] = setting(
        ("127.0.0.1",), "addresses whose X-Forwarded-For and -Proto headers are believed; * = all"
    )
    queue_timeout_s: float = setting(
        60.0, "longest wait before the first computation, then 503; 0 = none", unit="s", ge=0
    )
    request_timeout_s: float = setting(
        600.0, "longest life of a request, then 504; 0 = none", unit="s", ge=0
    )
    drain_timeout_s: float = setting(
        30.0, "how long a stop waits for running requests", unit="s", ge=0
    )
    hang_timeout_s: float = setting(
        60.0, "silence after which the runtime is restarted; longer than any step", unit="s", gt=0
    )
    compile_timeout_s: float = setting(
        2.0, "computing time that a constraint may take to compile, then 400", unit="s", gt=0
    )
    max_body_mb: float = setting(8.0, "largest request body, else 413", unit="MiB", gt=0)
    keepalive: KeepAliveMode = setting(
        "comment", "what a silent stream sends: an SSE comment, an empty delta, or nothing"
    )
    keepalive_s: float = setting(10.0, "silence before a keep-alive", unit="s", gt=0)
    grammar_engine: EngineChoice = setting("auto", "what enforces schemas and other constraints")
    allow_checked: bool = setting(
        False, "take schemas that a grammar cannot enforce wholly, and check the answers instead"
    )
    checked_retries: int = setting(
        8, "how often a part of a checked answer is generated anew before the request fails", ge=0
    )
    reasoning_markers: str = setting(
        "auto",
        "markers of reasoning, as start,end; auto = those of the model, none = it has none",
        pattern=r"^(auto|none|[^,\s]+,[^,\s]+)$",
    )
    tool_dialect: DialectSetting = setting(
        "auto", "form in which the model writes calls; auto = that of its chat template"
    )
    jump_forward: bool = setting(
        True, "append the tokens that a grammar leaves no choice about, without sampling them"
    )
    strict_params: bool = setting(False, "refuse unknown parameters with 400")
    runtime_url: str | None = setting(
        None, "a runtime that runs elsewhere, such as tcp://HOST:5700; absent = one as a child"
    )
    runtime_listen: str = setting(
        "tcp://127.0.0.1:5700", "where `radixgate runtime` waits for gateways"
    )
    trace_steps: float = setting(
        0.01, "share of the engine steps with a traced request in them that become spans",
        ge=0, le=1,
    )  # fmt: skip
    trace_content: bool = setting(
        False, "record prompts, tools and answers in traces; they are seen by whoever sees these"
    )
    slo_ttft_ms: float = setting(
        0.0, "TTFT that a request must keep to count as good; 0 = any", unit="ms", ge=0
    )
    slo_tpot_ms: float = setting(
        0.0, "TPOT that a request must keep to count as good; 0 = any", unit="ms", ge=0
    )
    price_file: str | None = setting(
        None, "YAML file with the price of a million tokens of each model; absent = no costs"
    )
    log_requests: bool = setting(False, "one log line for each finished request, with its trace")
    log_level: LogLevel = setting("info", "how much is logged")
    log_json: bool = setting(False, "one JSON object a log line instead of key=value")

    @field_validator("model_aliases")
    @classmethod
    def _are_pairs(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            alias, _, target = entry.partition("=")
            if not alias or not target:
                raise ValueError(f"{entry!r} is not of the form name=id")
        return entries

    @field_validator("runtime_url", "runtime_listen")
    @classmethod
    def _is_address(cls, address: str | None, info: ValidationInfo) -> str | None:
        if address is None:
            return None
        return check_address(address, is_to_listen=info.field_name == "runtime_listen")

    @classmethod
    def load(cls, environ: Mapping[str, str], overrides: Mapping[str, object]) -> Self:
        """Environment under flags; an override of None is a flag that was not given.

        Raises: SettingsError for an unknown RADIXGATE_ key and for a value that does not parse.
        """
        values, sources = _from_environment(environ)
        for name, value in overrides.items():
            if value is not None:
                values[name], sources[name] = value, flag_of(name)
        parsed = {name: _split(name, value) for name, value in values.items()}
        try:
            return cls.model_validate(parsed)
        except ValidationError as error:
            raise SettingsError(_explain(error, values=values, sources=sources)) from None


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting as the documentation and the command line show it."""

    name: str
    variable: str
    flag: str
    expected: str
    default: str
    unit: str
    description: str
    is_list: bool
    is_secret: bool


def describe_settings() -> list[SettingInfo]:
    """All settings in the order of the class."""
    return [_describe(name) for name in Settings.model_fields]


def variable_of(name: str) -> str:
    return PREFIX + name.upper()


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _describe(name: str) -> SettingInfo:
    field = Settings.model_fields[name]
    extra = typing.cast("dict[str, Any]", field.json_schema_extra)
    return SettingInfo(
        name=name,
        variable=variable_of(name),
        flag=flag_of(name),
        expected=_expected(name),
        default="random" if field.default_factory is not None else _show(field.default),
        unit=extra["unit"],
        description=field.description or "",
        is_list=_is_list(field.annotation),
        is_secret=bool(extra.get("secret")),
    )


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str]]:
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    files: dict[str, str] = {}
    for key in (*UNPREFIXED, *sorted(environ)):
        is_ours = key in UNPREFIXED or (key.startswith(PREFIX) and not key.startswith(TEST_PREFIX))
        if not is_ours or key not in environ or key == CLIENT_KEY_VARIABLE:
            continue
        name = key.removeprefix(PREFIX).lower()
        if (secret_name := _secret_in_file(key)) is not None:
            if environ[key].strip():
                files[secret_name] = key
            continue
        if name not in Settings.model_fields or key != key.upper():
            raise SettingsError(
                f"{key}={_shorten(environ[key])}: unknown setting; expected one of "
                f"{', '.join(variable_of(known) for known in Settings.model_fields)}"
            )
        if environ[key].strip():
            values[name], sources[name] = environ[key].strip(), key
    for name, key in files.items():
        if name in values:
            raise SettingsError(f"{key}: {variable_of(name)} is set as well; one of them is enough")
        values[name] = _read_secret(name, key=key, path=environ[key].strip())
        sources[name] = key
    return values, sources


def _secret_in_file(key: str) -> str | None:
    """The secret whose file the variable names, if it is one of these."""
    name = key.removeprefix(PREFIX).removesuffix(FILE_SUFFIX).lower()
    is_secret = name in Settings.model_fields and _describe(name).is_secret
    return name if is_secret and key == variable_of(name) + FILE_SUFFIX else None


def _read_secret(name: str, *, key: str, path: str) -> str:
    """Of a list each line is an item; others are one line. Raises: SettingsError."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:  # editors put a mark before the text
            text = file.read(_MAX_SECRET_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SettingsError(f"{key}={path!r}: the file cannot be read ({reason})") from None
    if len(text) > _MAX_SECRET_CHARACTERS:
        raise SettingsError(f"{key}={path!r}: the file is larger than any secret")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:  # taken for "absent" it would open the server to everyone
        raise SettingsError(f"{key}={path!r}: there is nothing in the file")
    if len(lines) > 1 and not _is_list(Settings.model_fields[name].annotation):
        raise SettingsError(f"{key}={path!r}: there is more than one line in the file")
    return ",".join(lines)


def _split(name: str, value: object) -> object:
    """A comma-separated text, or what a flag gave at each of its uses, becomes the tuple that list
    settings hold."""
    field = Settings.model_fields.get(name)
    if field is None or not _is_list(field.annotation):
        return value
    if isinstance(value, list):
        value = ",".join(value)
    if not isinstance(value, str):
        return value
    items = tuple(item.strip() for item in value.split(",") if item.strip())
    # "," is no list of keys: taken for "absent" it would open the server to everyone.
    return items or value


def _is_list(annotation: Any) -> bool:
    return typing.get_origin(annotation) is tuple


def _explain(
    error: ValidationError, *, values: Mapping[str, object], sources: Mapping[str, str]
) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    source = sources.get(name, flag_of(name))
    if name not in Settings.model_fields:
        return f"{source}={_shorten(str(values.get(name)))}: unknown setting"
    value = "(hidden)" if _describe(name).is_secret else _shorten(str(values.get(name)))
    return f"{source}={value}: expected {_expected(name)} ({problem['msg']})"


def _expected(name: str) -> str:
    annotation: Any = Settings.model_fields[name].annotation
    if isinstance(annotation, UnionType):
        annotation = next(kind for kind in typing.get_args(annotation) if kind is not type(None))
    if _is_list(annotation):
        return "a comma-separated list"
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(typing.get_args(annotation))
    kinds = {int: "an integer", float: "a number", bool: "true or false"}
    return kinds.get(annotation, "text")


def _show(default: object) -> str:
    if default is None or default == "" or default == ():
        return ""
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def _shorten(value: str) -> str:
    return repr(value if len(value) <= 60 else value[:57] + "...")
