"""What a number format costs: the mean log-probability of two fixed texts against float32.

    python -m tests.bench.quality [--model FILE] [--dtype bfloat16] [--num-tokens 8000]

Runs the product's own executor on the same weights in every number format it offers, in steps
shaped as serving shapes them.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec
from tokenizers import Tokenizer

from runtime.config import DTypeName, RuntimeConfig
from runtime.errors import RuntimePackageError
from runtime.model_runner import LoadedModel, load_executor
from runtime.model_source import ModelSource, open_model
from runtime.native.preparation import prepare
from runtime.native.upgrade import UpgradingExecutor
from tests.bench.teacher_forcing import StepShape, Window, forced_logprobs, split_windows
from tests.model_file import ROOT, default_model_path

TEXTS = ("alice.txt", "paradise_lost.txt")
NUM_TOKENS = 8000
# The target of this project, in % of the mean log-probability.
MAX_LOSS_PERCENT = 0.5
# So that a decode step can have 8 rows.
NUM_WINDOWS = 8

PREFILL = StepShape("prefill, 250 tokens a step", chunk_len=250, num_windows=1)
DECODE = StepShape("decode, 8 rows a step", chunk_len=1, num_windows=8)
DECODE_ALONE = StepShape("decode, 1 row a step", chunk_len=1, num_windows=1)
SHAPES = (PREFILL, DECODE, DECODE_ALONE)


@dataclass(frozen=True, slots=True)
class Loss:
    """One number format on one text, computed in steps of one shape."""

    text: str
    dtype: str
    shape: str
    exact: float  # mean log-probability in float32, natural log per token
    mean: float  # the same in `dtype`

    @property
    def percent(self) -> float:
        """Positive where the format finds the text less likely than float32 does."""
        return 100 * (self.exact - self.mean) / abs(self.exact)


def offered_dtypes() -> list[DTypeName]:
    """All that a user may ask for and that are not float32."""
    names: tuple[DTypeName, ...] = get_args(DTypeName)
    return [name for name in names if name not in ("auto", "float32")]


def windows_of(source: ModelSource, name: str, num_tokens: int) -> list[Window]:
    """The first `num_tokens` tokens of a text under tests/data, in NUM_WINDOWS windows."""
    tokenizer = Tokenizer.from_str(source.text.tokenizer_json)
    text = (ROOT / "tests/data" / name).read_text(encoding="ascii")
    token_ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert len(token_ids) >= num_tokens, f"{name} has {len(token_ids)} tokens only"
    return split_windows(token_ids[:num_tokens], num_tokens // NUM_WINDOWS)


def load(source: ModelSource, config: RuntimeConfig) -> LoadedModel:
    """With the native step built first: no token may be scored by what stands in for it.

    Raises: ModelError, ConfigError, BuildError.
    """
    if config.dtype == "int8":
        prepare(config.model)
    loaded = load_executor(source, config)
    assert loaded.dtype == config.dtype
    assert not isinstance(loaded.executor, UpgradingExecutor)
    return loaded


def mean_logprob(loaded: LoadedModel, windows: Sequence[Window], shape: StepShape) -> float:
    return statistics.fmean(
        forced_logprobs(
            loaded.executor,
            windows,
            shape=shape,
            vocab_size=loaded.vocab_size,
            page_size=loaded.page_size,
        )
    )


def measure(
    config: RuntimeConfig,
    dtypes: Sequence[DTypeName],
    *,
    num_tokens: int = NUM_TOKENS,
    shapes: Sequence[StepShape] = SHAPES,
) -> Iterator[Loss]:
    """Each format on each text, in steps of each shape; float32 is computed in the first shape.

    Raises: ModelError, ConfigError, BuildError.
    """
    source = open_model(config.model)
    texts = {name: windows_of(source, name, num_tokens) for name in TEXTS}
    loaded = load(source, msgspec.structs.replace(config, dtype="float32"))
    exact = {name: mean_logprob(loaded, windows, shapes[0]) for name, windows in texts.items()}
    for dtype in dtypes:
        loaded = load(source, msgspec.structs.replace(config, dtype=dtype))
        for name, windows in texts.items():
            for shape in shapes:
                mean = mean_logprob(loaded, windows, shape)
                yield Loss(name, loaded.dtype, shape.name, exact[name], mean)


def main() -> int:
    """Prints a line a measurement; 1 where one is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(default_model_path()))
    parser.add_argument("--dtype", action="append", help="only these (default: all but float32)")
    parser.add_argument("--num-tokens", type=int, default=NUM_TOKENS)
    options = parser.parse_args()
    config = RuntimeConfig(model=options.model)
    worst = -float("inf")
    print("| text | format | computed in | float32 | mean log-probability | loss % |")
    print("| --- | --- | --- | --- | --- | --- |")
    dtypes = options.dtype or offered_dtypes()
    try:
        for loss in measure(config, dtypes, num_tokens=options.num_tokens):
            worst = max(worst, loss.percent)
            print(
                f"| {loss.text} | {loss.dtype} | {loss.shape}"
                f" | {loss.exact:.4f} | {loss.mean:.4f} | {loss.percent:.3f} |",
                flush=True,
            )
    except RuntimePackageError as error:
        print(f"quality: {error}", file=sys.stderr)
        return 1
    print(f"largest loss {worst:.3f} %, the limit is {MAX_LOSS_PERCENT} %")
    return int(worst > MAX_LOSS_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
