"""`radixgate plan`: where models come from, what is printed, what is refused."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway import plan_device
from gateway.cli import main
from runtime.calibration_messages import Calibration, CalibrationShape
from tests.tiny_gguf import write_tiny_gguf

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = "plan --model llama-3.1-70b --gpu h100 --users 100 --prompt 2000 --output 500"
EXAMPLE += " --shared-prefix 1500 --ttft 1s --tpot 50ms --price-per-hour 2.5"
CALIBRATION = Calibration(
    kernel="avx512_bf16",
    num_threads=2,
    read_bytes_s=30e9,
    weight_bytes_s=35e9,
    decode_flops=0.8e12,
    prefill_flops=1e12,
    attention_flops=0.5e12,
    kv_bytes_s=20e9,
)


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}


def run(arguments: str | Sequence[str]) -> int:
    return main(arguments.split() if isinstance(arguments, str) else arguments)


def planned(capsys: pytest.CaptureFixture[str], arguments: str) -> dict[str, Any]:
    assert run(f"{arguments} --json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_docs_show_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(EXAMPLE) == 0
    page = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- example -->\n```\n(.*?)```\n<!-- end -->", page, re.S)
    assert block is not None
    command, end, printed = block[1].partition("price-per-hour 2.5\n")
    assert f"{command}{end}".replace("\\\n", "").split() == ["$", "radixgate", *EXAMPLE.split()]
    assert printed == capsys.readouterr().out


def test_the_plan_as_json_has_plain_units(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, EXAMPLE)
    assert found["model"]["kv_bytes_per_token"] == 327_680
    assert found["model"]["weights_bytes"] == 2 * 70_553_706_496
    assert found["gpus"] == 4
    assert found["loaded"]["tpot_s"] < 0.05
    assert found["assumptions"]["bandwidth"] == 0.8
    assert found["calibration"] is None
    assert found["kv_of_load"]["bytes"] < found["kv_of_load"]["bytes_without_sharing"]


def test_a_gguf_file_is_planned_with_its_own_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    found = planned(capsys, f"plan --model {path} --gpu l4 --prompt 16 --output 8")
    assert found["model"]["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert 0 < found["model"]["weights_bytes"] < path.stat().st_size


def test_a_folder_is_planned_from_its_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = planned(capsys, f"plan --model {tmp_path} --gpu l4 --prompt 16 --output 8")
    assert found["model"]["source"] == "config.json"
    assert found["model"]["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2


def test_sizes_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--params 8.03b --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --vocab 128256"
    found = planned(capsys, f"plan {sizes} --memory-gb 80 --bandwidth-gbs 3350 --tflops 989.5")
    named = planned(capsys, "plan --model llama-3.1-8b --gpu h100")
    assert found["model"]["parameters"] == 8_030_000_000
    assert found["alone"]["tpot_s"] == pytest.approx(named["alone"]["tpot_s"], rel=1e-3)


def test_eight_bits_are_computed_in_eight_bits_and_four_and_a_half_in_sixteen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = "plan --model llama-3.1-8b --gpu h100 --prompt 4000"
    full, eight, four = (
        planned(capsys, f"{plan} --weight-bits {bits}")["alone"] for bits in (16, 8, 4.5)
    )
    ratio = full["prefill"]["matmul_s"] / eight["prefill"]["matmul_s"]
    assert ratio == pytest.approx(2.0)
    assert four["prefill"]["matmul_s"] == full["prefill"]["matmul_s"]
    assert four["tpot_s"] < eight["tpot_s"] < full["tpot_s"]


def test_the_kv_format_and_the_windows_count(capsys: pytest.CaptureFixture[str]) -> None:
    plan = "plan --model gemma-3-27b --gpu h100 --prompt 30000 --output 100"
    kept, eight, dropped = (
        planned(capsys, f"{plan} {more}")["kv_of_load"]["bytes"]
        for more in ("", "--kv-dtype fp8", "--drop-windows")
    )
    assert eight == kept / 2
    assert dropped < kept / 4


def test_this_cpu_is_measured_with_layers_of_the_models_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[CalibrationShape] = []

    def measure(shape: CalibrationShape) -> Calibration:
        shapes.append(shape)
        return CALIBRATION

    monkeypatch.setattr(plan_device, "measure_cpu", measure)
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    found = planned(capsys, f"plan --model {path} --cpu --prompt 16 --output 8")
    (shape,) = shapes
    assert (shape.hidden_size, shape.num_kv_heads, shape.head_dim) == (64, 2, 16)
    assert found["calibration"]["prefill_flops"] == 1e12
    assert found["best_change"] is None
    assert run(f"plan --model {path} --cpu --prompt 16 --output 8") == 0
    assert "measured  weights 35.0 GB/s" in capsys.readouterr().out


def test_the_known_models_and_gpus_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan --list") == 0
    out = capsys.readouterr().out
    assert "https://huggingface.co/meta-llama/Llama-3.1-70B" in out
    assert "H100-SXM" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--model llama-3.1-405b --gpu l4", 1, "does not fit: the weights of llama-3.1-405b take"),
        ("--model llama-9b --gpu l4", 1, "'llama-9b' is no file, no folder, no hub id"),
        ("--model org/name/a.gguf --gpu l4", 1, "its header is not read over the network"),
        ("--model llama-3.1-8b --gpu h900", 1, "'h900' is no known GPU"),
        ("--gpu h100", 1, "name a --model, or its sizes: --params, --layers"),
        ("--model llama-3.1-8b", 2, "name one device"),
        ("--model llama-3.1-8b --gpu h100 --cpu", 2, "name one device"),
        ("--model llama-3.1-8b --memory-gb 80", 2, "belong together"),
        ("--model llama-3.1-8b --gpu h100 --layers 3", 2, "--layers cannot be given with --model"),
        ("--model llama-3.1-8b --gpu h100 --link-gbs 3", 2, "--link-gbs cannot be given with"),
        ("--model llama-3.1-8b --cpu --gpus 2", 2, "--gpus cannot be given with --cpu"),
        ("--model llama-3.1-8b --cpu --kv-dtype fp8", 2, "--kv-dtype cannot be given with --cpu"),
        ("--model llama-3.1-8b --gpu h100 --users 2 --rate 1", 2, "exclude each other"),
        ("--model llama-3.1-8b --gpu h100 --memory-share 2", 2, "at most 1"),
        ("--model qwen2.5-7b --gpu h100 --tensor-parallel 8", 1, "28 heads cannot be split over 8"),
        ("--model ~nobody-here/x --gpu l4", 1, "Could not determine home directory"),
        (f"--model {'a' * 5000} --gpu l4", 1, "File name too long"),
        (
            "--model qwen2.5-7b --gpu h100 --weight-bits 40",
            1,
            "weights of 40 bits are not possible",
        ),
        ("--params 1b --layers 20000 --hidden 64 --heads 2 --vocab 9 --gpu l4", 1, "10,000"),
        (
            "--params 1b --layers 2 --hidden 64 --heads 2 --vocab 9 --experts 2 --gpu l4",
            1,
            "--experts, --experts-used and --expert-ffn belong together",
        ),
    ],
)
def test_what_cannot_be_planned_ends_in_one_line(
    arguments: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"plan {arguments}") == code
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("radixgate: ")
    assert err.count("\n") == 1
    assert len(err) < 1000


def test_named_bits_help_where_the_config_does_not_say_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | {"quantization_config": {"quant_method": "new"}}))
    assert run(["plan", "--model", str(path), "--gpu", "l4"]) == 1
    assert "name --weight-bits" in capsys.readouterr().err
    found = planned(capsys, f"plan --model {path} --gpu l4 --prompt 9 --output 9 --weight-bits 8")
    assert found["model"]["weights_bytes"] > 0


@pytest.mark.parametrize(
    "flags",
    [
        "--rate 1e-9 --price-per-hour 1e-9",
        "--rate 1e9 --price-per-hour 1e9",
        "--users 999999999999 --output 1",
        "--memory-share 1e-9 --users 9",
        "--flop-efficiency 1e-9 --bandwidth-efficiency 1e-9 --rate 1e-9 --price-per-hour 1",
        "--step-overhead 9999999s --request-overhead 9999999s --price-per-hour 1",
        "--chunk 999999999999 --ttft 1m --tpot .5s",
        "--gpus 999999999999 --users 3 --price-per-hour 1",
    ],
)
def test_extremes_give_a_plan_of_finite_numbers_or_a_line(
    flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(f"plan --model qwen3-0.6b --gpu l4 --json {flags}")
    said = capsys.readouterr()
    assert (code, said.err.count("\n")) in ((0, 0), (1, 1))
    if code == 0:
        assert json.loads(said.out)["loaded"]["requests_s"] > 0


def test_a_rate_of_almost_nothing_is_that_rate(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "plan --model qwen3-0.6b --gpu l4 --rate 1e-8 --price-per-hour 1")
    assert found["loaded"]["requests_s"] == pytest.approx(1e-8)
    assert found["cost"]["per_request"] == pytest.approx(1 / 3600e-8)


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"model_type": "llama"}', '{"hidden_size": 1e999}']
)
def test_a_broken_config_ends_in_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(content)
    assert run(["plan", "--model", str(tmp_path), "--gpu", "l4"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_broken_gguf_file_ends_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF" + bytes(10))
    assert run(["plan", "--model", str(path), "--gpu", "l4"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "flag",
    [
        "--ttft 500",
        "--tpot ms",
        "--users 0",
        "--rate -1",
        "--prompt x",
        "--params 8q",
        "--rate nan",
        "--rate 1e-300",
        "--rate 1e30",
        "--params 1e308t",
        "--memory-gb 1e300",
        "--ttft 1e9h",
    ],
)
def test_a_value_of_the_wrong_form_is_told_by_the_parser(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(f"plan --model llama-3.1-8b --gpu h100 {flag}")
    assert ended.value.code == 2
    assert "expected" in capsys.readouterr().err
