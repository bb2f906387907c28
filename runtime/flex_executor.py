"""Assembles the executor for GPUs from parts that also run on the CPU: FlexAttention, recorded
decode steps, the sampler that waits once. What is CUDA's alone comes in as arguments."""

import torch
from torch import Tensor

from runtime.decode_graphs import Capture, DecodeGraphs, DecodeInputs
from runtime.decoder import Decoder
from runtime.decoder_spec import DecoderSpec
from runtime.decoder_weights import DecoderWeights
from runtime.device_sampler import sample_on_device
from runtime.flex_attention import Attend, FlexPagedAttention
from runtime.pool_limits import PoolLimits
from runtime.torch_executor import TorchExecutor


def build_flex_executor(
    spec: DecoderSpec,
    weights: DecoderWeights,
    limits: PoolLimits,
    *,
    dtype: torch.dtype,
    device: torch.device,
    attend: Attend,
    capture: Capture | None,
) -> TorchExecutor:
    """`capture` None: every step runs operation by operation."""
    model = Decoder(spec, weights, max_position=limits.max_model_len)
    attention = FlexPagedAttention(
        spec,
        num_pages=limits.num_pages,
        page_size=limits.page_size,
        max_model_len=limits.max_model_len,
        dtype=dtype,
        device=device,
        attend=attend,
    )
    # Which experts run is asked of the device in the middle of a step, so it cannot be recorded.
    graphs = None
    if capture is not None and spec.experts is None:
        graphs = _graphs(model, attention, capture, device=device)
    return TorchExecutor(model, attention, device=device, graphs=graphs, sample=sample_on_device)


def _graphs(
    model: Decoder, attention: FlexPagedAttention, capture: Capture, *, device: torch.device
) -> DecodeGraphs:
    def compute(inputs: DecodeInputs) -> Tensor:
        hidden = model.forward(
            inputs.token_ids.long(),
            inputs.positions.long(),
            attention=attention,
            plan=attention.plan_decode(inputs.positions, inputs.page_table),
        )
        return model.logits(hidden)

    return DecodeGraphs(
        compute,
        capture,
        table_width=attention.table_width,
        scratch_page=attention.scratch_page,
        device=device,
    )
