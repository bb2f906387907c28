"""What a runtime process is told at start, and the pure function that settles its `auto` values."""

from typing import Literal

import msgspec

DTypeName = Literal["auto", "float32", "bfloat16"]
DeviceName = Literal["auto", "cpu", "cuda"]


class RuntimeConfig(msgspec.Struct, frozen=True):
    """Settings of one runtime. `max_model_len` None = what model and KV memory allow.

    `kv_memory_bytes` sizes the page pool. `max_step_tokens` is the token budget of one step,
    decode rows first. `watermark` is the share of the pool kept free when admitting.
    `gateway_timeout_s` is how long a gateway may be silent before its requests are freed.
    """

    model: str
    dtype: DTypeName = "auto"
    device: DeviceName = "auto"
    max_model_len: int | None = None
    kv_memory_bytes: int = 512 * 1024 * 1024
    page_size: int = 16
    max_running: int = 16
    max_step_tokens: int = 512
    watermark: float = 0.01
    num_threads: int = 0
    gateway_timeout_s: float = 15.0
