"""The default model finds real text nearly as likely in every number format as in float32.

The whole measure, over 8,000 tokens a text, is `python -m tests.bench.quality`.
"""

import pytest

from runtime.config import DTypeName, RuntimeConfig
from tests.bench.quality import (
    DECODE,
    MAX_LOSS_PERCENT,
    PREFILL,
    TEXTS,
    Loss,
    measure,
    offered_dtypes,
)
from tests.model_file import default_model_path, needs_model
from tests.native_library import HAS_COMPILER, NO_COMPILER

NUM_TOKENS = 512


@needs_model
@pytest.mark.timeout(180)
@pytest.mark.parametrize("dtype", offered_dtypes())
def test_a_number_format_costs_at_most_half_a_percent(dtype: DTypeName) -> None:
    if dtype == "int8" and not HAS_COMPILER:
        pytest.skip(NO_COMPILER)
    config = RuntimeConfig(model=str(default_model_path()), device="cpu")
    losses = list(measure(config, [dtype], num_tokens=NUM_TOKENS, shapes=(PREFILL, DECODE)))
    assert len(losses) == len(TEXTS) * 2
    # Real text, read with sense: a guess over the whole vocabulary is at -10.8.
    assert all(loss.dtype == dtype and -5.5 < loss.exact < -3 for loss in losses)
    assert [loss for loss in losses if loss.percent > MAX_LOSS_PERCENT] == []


def test_a_loss_is_positive_where_the_text_became_less_likely() -> None:
    assert Loss("", "", "", exact=-4.0, mean=-4.02).percent == pytest.approx(0.5)
