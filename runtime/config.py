"""What a runtime process is told at start, and the pure function that settles its `auto` values."""

from typing import TYPE_CHECKING, Literal

import msgspec

from runtime.errors import ConfigError

if TYPE_CHECKING:
    from runtime.hardware import Hardware  # needs torch, which the gateway process must not load

DTypeName = Literal["auto", "float32", "bfloat16", "int8"]
TorchDTypeName = Literal["float32", "bfloat16"]
DeviceName = Literal["auto", "cpu", "cuda"]


CacheFormat = Literal["raw", "int8"]


class TierConfig(msgspec.Struct, frozen=True):
    """The lower tiers of the prefix cache. Redis is used where the environment of the process has
    a URL for it (worker_process.CACHE_REDIS_VARIABLE): it may hold a password, and arguments are
    seen by everyone on the machine.

    `model_id` is the name under which replicas agree on what they share; `secret_check` is a hash
    of the secret behind the namespaces, without which none would find another's pages.
    """

    disk_dir: str | None = None
    disk_bytes: int = 4 * 1024**3
    host_bytes: int = 0
    redis_ttl_s: int = 3600
    format: CacheFormat = "raw"
    model_id: str = ""
    secret_check: str = ""


class RuntimeConfig(msgspec.Struct, frozen=True):
    """Settings of one runtime. `max_model_len` None = what model and KV memory allow.

    `kv_memory_bytes` sizes the page pool. `max_step_tokens` is the token budget of one step,
    decode rows first. `watermark` is the share of the pool kept free when admitting.
    Requests with less to compute overtake one that waits for `max_overtaking_s` at most.
    `jump_forward` appends what a grammar forces without sampling it.
    `pin_share` bounds one owner's pins in the pool.
    `trace_steps` is the share of steps that are recorded, of those with a traced request in them.
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
    max_overtaking_s: float = 2.0
    jump_forward: bool = True
    num_threads: int = 0
    gateway_timeout_s: float = 15.0
    pin_share: float = 0.25
    tiers: TierConfig = TierConfig()
    trace_steps: float = 0.0


class ResolvedConfig(msgspec.Struct, frozen=True):
    """The settings with every `auto` settled for one machine.

    dtype `int8` is the native step: weights of 4 or 8 bits, activations of 8. `torch_dtype` is what
    torch computes in: the same, or with `int8` what is computed in until the native step is there.
    """

    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16", "int8"]
    torch_dtype: TorchDTypeName
    num_threads: int | None


def resolve(config: RuntimeConfig, hardware: "Hardware") -> ResolvedConfig:
    """Settles the `auto` values; depends on nothing but its arguments.

    Raises: ConfigError for a device or a number format that the machine does not have.
    """
    if config.device == "cuda" and not hardware.has_cuda:
        raise ConfigError("device is cuda, but no CUDA device was found; use cpu or auto")
    wants_cuda = config.device == "cuda" or (config.device == "auto" and hardware.has_cuda)
    device: Literal["cpu", "cuda"] = "cuda" if wants_cuda else "cpu"
    has_fast_bfloat16 = wants_cuda or hardware.has_fast_cpu_bfloat16
    torch_dtype: TorchDTypeName = "bfloat16" if has_fast_bfloat16 else "float32"
    dtype = config.dtype
    if dtype == "auto":
        dtype = "int8" if device == "cpu" and hardware.can_run_native_step else torch_dtype
    if dtype == "int8":
        if device != "cpu":
            raise ConfigError("dtype int8 is for the CPU; use bfloat16 or auto on a GPU")
        if not hardware.can_run_native_step:
            raise ConfigError("dtype int8 needs a C++ compiler (g++), and none was found")
    else:
        torch_dtype = dtype
    return ResolvedConfig(device, dtype, torch_dtype, config.num_threads or None)
