"""Measures what this CPU does for layers of a given shape: how fast weights and KV are read, and
how fast matrices and attention are computed. The weights are random; no model is needed.

`python -m runtime.calibration SHAPE` (JSON of CalibrationShape) prints a Calibration as JSON. A
program of its own, as the planner in the gateway package must not load torch.
"""

import sys
import time
from collections.abc import Callable

import msgspec
import torch

from runtime.batch import PageId, RowKey, ScheduledBatch, ScheduledRow
from runtime.calibration_messages import Calibration, CalibrationShape
from runtime.decoder_spec import DecoderSpec, LayerSpec, RotarySpec
from runtime.errors import RuntimePackageError
from runtime.hardware import detect_hardware
from runtime.native.blocks import BLOCK_LEN
from runtime.native.build import build_library
from runtime.native.instruction_sets import choose_instruction_set
from runtime.native.library import load_library
from runtime.native.native_decoder import NativeDecoder, find_obstacle
from runtime.native.packed_weights import TILE_ROWS, PackedMatrix, PackedWeights, block_bytes
from runtime.pool_limits import PoolLimits

_PAGE_SIZE = 16
_VOCAB_SIZE = 32
# More weights than caches hold, so that each step reads them from memory; few enough for seconds.
_MIN_WEIGHT_BYTES = 192 << 20
_READ_BYTES = 512 << 20
_NUM_DECODE_ROWS, _CHUNK = 16, 256
_CONTEXT = 1024  # tokens behind which attention is measured
_NUM_ATTENTION_LAYERS = 4
_NUM_TIMES = 7


def calibrate(shape: CalibrationShape) -> Calibration:
    """Takes some seconds. Raises: RuntimePackageError where the native step cannot run."""
    instruction_set = choose_instruction_set(detect_hardware().cpu_flags)
    library = load_library(build_library(instruction_set))
    num_layers = -(-_MIN_WEIGHT_BYTES // _layer_bytes(shape))
    wide = _Layers(library, shape, num_layers=num_layers, num_tokens=_CHUNK * _NUM_DECODE_ROWS)
    one_s = wide.seconds(rows=1, tokens=1, start=0)
    few_s = wide.seconds(rows=_NUM_DECODE_ROWS, tokens=1, start=0)
    many_s = wide.seconds(rows=1, tokens=_CHUNK, start=0)
    flops = 2.0 * num_layers * _layer_weights(shape)
    deep = _Layers(
        library,
        shape,
        num_layers=_NUM_ATTENTION_LAYERS,
        num_tokens=(_CONTEXT + _CHUNK) * _NUM_DECODE_ROWS,
    )
    deep.fill(_CONTEXT)
    attention_s, kv_s = deep.attention_seconds()
    pairs = _CHUNK * _CONTEXT * _NUM_ATTENTION_LAYERS
    kv_bytes = 4 * shape.num_kv_heads * shape.head_dim * _NUM_ATTENTION_LAYERS
    return Calibration(
        kernel=instruction_set.name,
        num_threads=torch.get_num_threads(),
        read_bytes_s=_READ_BYTES / _read_seconds(),
        weight_bytes_s=num_layers * _layer_bytes(shape) / one_s,
        decode_flops=_NUM_DECODE_ROWS * flops / few_s,
        prefill_flops=_CHUNK * flops / many_s,
        attention_flops=4.0 * shape.num_heads * shape.head_dim * pairs / attention_s,
        kv_bytes_s=_NUM_DECODE_ROWS * _CONTEXT * kv_bytes / kv_s,
    )


class _Layers:
    """A decoder of random weights with room for `num_tokens` tokens in _NUM_DECODE_ROWS rows."""

    def __init__(
        self, library: object, shape: CalibrationShape, *, num_layers: int, num_tokens: int
    ) -> None:
        spec = _spec(shape, num_layers)
        obstacle = find_obstacle(spec, page_size=_PAGE_SIZE)
        if obstacle is not None:
            raise RuntimePackageError(f"the native step cannot run such layers: {obstacle}")
        self._pages_each = num_tokens // _NUM_DECODE_ROWS // _PAGE_SIZE
        limits = PoolLimits(
            num_pages=self._pages_each * _NUM_DECODE_ROWS,
            page_size=_PAGE_SIZE,
            max_model_len=self._pages_each * _PAGE_SIZE,
        )
        threads = torch.get_num_threads()
        self._decoder = NativeDecoder(
            library, spec, _random_weights(shape, num_layers), limits, num_threads=threads
        )

    def seconds(self, *, rows: int, tokens: int, start: int) -> float:
        """Of the fastest of some steps: whatever else runs only adds time."""
        batch = self._batch(rows=rows, tokens=tokens, start=start)
        self._decoder.step(batch)
        return min(_timed(lambda: self._decoder.step(batch)) for _ in range(_NUM_TIMES))

    def fill(self, num_tokens: int) -> None:
        """Writes KV, so that its memory is the system's and is read from where it will lie."""
        for start in range(0, num_tokens, _PAGE_SIZE * 2):
            self._decoder.step(
                self._batch(rows=_NUM_DECODE_ROWS, tokens=_PAGE_SIZE * 2, start=start)
            )

    def attention_seconds(self) -> tuple[float, float]:
        """What attention to _CONTEXT tokens adds to a chunk, and to a step of decode rows."""
        added = []
        for rows, tokens in ((1, _CHUNK), (_NUM_DECODE_ROWS, 1)):
            behind_s = self.seconds(rows=rows, tokens=tokens, start=_CONTEXT)
            alone_s = self.seconds(rows=rows, tokens=tokens, start=0)
            added.append(max(behind_s - alone_s, 1e-9))
        return added[0], added[1]

    def _batch(self, *, rows: int, tokens: int, start: int) -> ScheduledBatch:
        return ScheduledBatch(
            0,
            tuple(
                ScheduledRow(
                    key=RowKey(row),
                    token_ids=tuple(i % _VOCAB_SIZE for i in range(tokens)),
                    start=start,
                    page_ids=tuple(
                        PageId(row * self._pages_each + page) for page in range(self._pages_each)
                    ),
                    sample_offsets=(tokens - 1,),
                )
                for row in range(rows)
            ),
        )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _read_seconds() -> float:
    """Of reading memory in order, on all threads."""
    values = torch.ones(_READ_BYTES // 4)
    values.sum()
    return min(_timed(values.sum) for _ in range(_NUM_TIMES))


def _spec(shape: CalibrationShape, num_layers: int) -> DecoderSpec:
    rotary = RotarySpec((1.0,) * (shape.head_dim // 2))
    return DecoderSpec(
        hidden_size=shape.hidden_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        ffn_size=shape.ffn_size,
        vocab_size=_VOCAB_SIZE,
        max_position=1 << 20,
        norm_eps=1e-5,
        attention_scale=shape.head_dim**-0.5,
        tied_embeddings=True,
        layers=(LayerSpec(rotary),) * num_layers,
    )


def _matrix_sizes(shape: CalibrationShape) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of the matrices of a layer."""
    heads = shape.num_heads * shape.head_dim
    kv_heads = shape.num_kv_heads * shape.head_dim
    ffn_size = -(-shape.ffn_size // BLOCK_LEN) * BLOCK_LEN
    return {
        "qkv": (heads + 2 * kv_heads, shape.hidden_size),
        "attention_output": (shape.hidden_size, heads),
        "ffns.0.gate_up": (2 * ffn_size, shape.hidden_size),
        "ffns.0.down": (shape.hidden_size, ffn_size),
    }


def _layer_weights(shape: CalibrationShape) -> int:
    return sum(outputs * inputs for outputs, inputs in _matrix_sizes(shape).values())


def _layer_bytes(shape: CalibrationShape) -> int:
    return _layer_weights(shape) * block_bytes(shape.weight_bits) // (TILE_ROWS * BLOCK_LEN)


def _random_weights(shape: CalibrationShape, num_layers: int) -> PackedWeights:
    generator = torch.Generator().manual_seed(0)
    hidden, bits = shape.hidden_size, shape.weight_bits
    matrices = {"embedding": _matrix(_VOCAB_SIZE, hidden, bits, generator)}
    arrays = {"final_norm": torch.ones(hidden)}
    for layer in range(num_layers):
        arrays |= {f"{layer}.{name}": torch.ones(hidden) for name in ("attention_norm", "ffn_norm")}
        for name, (outputs, inputs) in _matrix_sizes(shape).items():
            matrices[f"{layer}.{name}"] = _matrix(outputs, inputs, bits, generator)
    return PackedWeights(matrices, arrays)


def _matrix(outputs: int, inputs: int, bits: int, generator: torch.Generator) -> PackedMatrix:
    """Levels at random: weights between -1 and 1, divided by the number of inputs."""
    tiles, blocks = -(-outputs // TILE_ROWS), -(-inputs // BLOCK_LEN)
    data = torch.randint(
        0, 256, (tiles, blocks, block_bytes(bits)), dtype=torch.uint8, generator=generator
    )
    tails = torch.empty(tiles, blocks, 2, TILE_ROWS, dtype=torch.float16)
    tails[:, :, 0], tails[:, :, 1] = 2 / (2**bits - 1), -1.0
    data[..., 64 * bits :] = tails.flatten(2).view(torch.uint8)
    return PackedMatrix(data, 1 / inputs, bits)


def main(arguments: list[str]) -> int:
    """Exit code 0 after a line of JSON, else 1 after one line on stderr."""
    try:
        shape = msgspec.json.decode(arguments[0], type=CalibrationShape)
        found = calibrate(shape)
    except RuntimePackageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
