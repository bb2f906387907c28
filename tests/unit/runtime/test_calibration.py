"""This machine is measured with random layers of a shape."""

import msgspec
import pytest

from runtime import calibration
from runtime.calibration_messages import Calibration, CalibrationShape
from runtime.errors import RuntimePackageError
from tests.native_library import HAS_COMPILER, NO_COMPILER

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)

SHAPE = CalibrationShape(
    hidden_size=64, num_heads=4, num_kv_heads=2, head_dim=16, ffn_size=96, weight_bits=4
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("_MIN_WEIGHT_BYTES", 1 << 17),
        ("_READ_BYTES", 1 << 20),
        ("_CONTEXT", 64),
        ("_CHUNK", 32),
        ("_NUM_TIMES", 2),
    ):
        monkeypatch.setattr(calibration, name, value)


@pytest.mark.parametrize("bits", [4, 8])
def test_every_rate_is_measured(bits: int) -> None:
    found = msgspec.to_builtins(
        calibration.calibrate(msgspec.structs.replace(SHAPE, weight_bits=bits))
    )
    rates = {name: value for name, value in found.items() if isinstance(value, float)}
    assert len(rates) == 6
    assert all(1e6 < rate < 1e15 for rate in rates.values())
    assert found["num_threads"] >= 1


def test_rates_are_work_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.001, 0.004, 0.010])
    monkeypatch.setattr(calibration._Layers, "seconds", lambda *_, **__: next(seconds))
    monkeypatch.setattr(calibration._Layers, "attention_seconds", lambda _: (0.002, 0.003))
    monkeypatch.setattr(calibration, "_read_seconds", lambda: 0.5)
    found = calibration.calibrate(SHAPE)
    weights = (4 + 2 * 2) * 16 * 64 + 64 * 64 + 3 * 64 * 96
    layer_bytes = weights * 5 // 8
    num_layers = -(-(1 << 17) // layer_bytes)
    assert found.weight_bytes_s == pytest.approx(num_layers * layer_bytes / 0.001)
    assert found.decode_flops == pytest.approx(16 * 2 * num_layers * weights / 0.004)
    assert found.prefill_flops == pytest.approx(32 * 2 * num_layers * weights / 0.010)
    assert found.attention_flops == pytest.approx(4 * 4 * 16 * 32 * 64 * 4 / 0.002)
    assert found.kv_bytes_s == pytest.approx(16 * 64 * 2 * 2 * 16 * 2 * 4 / 0.003)
    assert found.read_bytes_s == pytest.approx((1 << 20) / 0.5)


def test_a_shape_that_the_native_step_cannot_run_is_refused() -> None:
    with pytest.raises(RuntimePackageError, match="cannot run such layers: a head size of 20"):
        calibration.calibrate(msgspec.structs.replace(SHAPE, head_dim=20))


def test_the_program_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert calibration.main([msgspec.json.encode(SHAPE).decode()]) == 0
    out = capsys.readouterr().out
    assert msgspec.json.decode(out, type=Calibration).kernel


def test_the_program_says_in_one_line_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    shape = msgspec.structs.replace(SHAPE, hidden_size=65)
    assert calibration.main([msgspec.json.encode(shape).decode()]) == 1
    assert capsys.readouterr().err.count("\n") == 1
