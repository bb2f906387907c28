"""What the checks on a GPU share: the device, the models, one table for all figures."""

import pytest
import torch

from tests.gpu.measure import Device, measure_device
from tests.gpu.models import MEDIUM, GpuModel, default_model, random_model

_LINES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LINES] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    reason = f"no CUDA device here (torch {torch.__version__}); these checks are for a GPU"
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = terminalreporter.config.stash[_LINES]
    if lines:
        terminalreporter.write_line("")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def device() -> Device:
    return measure_device(torch.device("cuda"))


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest, device: Device) -> list[str]:
    """Lines in Markdown, printed at the end."""
    lines = request.config.stash[_LINES]
    copies, matmul = device.bytes_per_s / 1e12, device.flops_per_s / 1e12
    lines += [
        f"{device.name}, torch {torch.__version__}",
        f"copies {copies:.2f} TB/s (read and written), bfloat16 matmul {matmul:.0f} TFLOP/s",
        "",
        "| model | step | ms with graphs | ms without | ratio | floor ms | over floor |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return lines


@pytest.fixture(scope="session")
def default() -> GpuModel:
    return default_model()


@pytest.fixture(scope="session", params=["default", "1.5B"])
def model(request: pytest.FixtureRequest, default: GpuModel) -> GpuModel:
    return default if request.param == "default" else random_model("random, 1.5B", MEDIUM)
