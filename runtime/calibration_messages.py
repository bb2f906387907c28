"""What runtime/calibration.py is asked for and what it answers. No torch: the planner's command
reads them in the gateway process."""

import msgspec


class CalibrationShape(msgspec.Struct, frozen=True):
    """Sizes of a layer; `weight_bits` 4 or 8, in the native step's blocks."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    weight_bits: int


class Calibration(msgspec.Struct, frozen=True):
    """Rates on all threads. `read_bytes_s`: memory in order, without any arithmetic;
    `weight_bytes_s`: weights in a step of one row, `decode_flops` in one of 16 rows,
    `prefill_flops` in a chunk of 256 tokens; `attention_flops` of such a chunk behind 1,024
    tokens; `kv_bytes_s`: keys and values in a step of 16 rows behind 1,024 tokens each."""

    kernel: str
    num_threads: int
    read_bytes_s: float
    weight_bytes_s: float
    decode_flops: float
    prefill_flops: float
    attention_flops: float
    kv_bytes_s: float
