"""The forward pass of any decoder that a DecoderSpec describes, over a flattened ragged batch.

Plain torch: what every faster step is compared with. Letters: M tokens, H and G query and
key-value heads, d head size, V vocabulary, S rows whose logits are wanted.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from runtime.attention_backend import AttentionBackend, PlanT
from runtime.decoder_spec import DecoderSpec, RotarySpec
from runtime.decoder_weights import DecoderWeights, FeedForwardWeights, LayerWeights

Rotation = tuple[Tensor, Tensor]  # cos and sin, [M, 1, d] float32 each


class Decoder:
    """Weights and the forward pass. Norms, rotary positions and softmax are in float32."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, *, max_position: int) -> None:
        self._spec = spec
        self._weights = weights
        device = weights.embedding.device
        self._tables = {
            rotary: rotary_table(rotary, max_position, device=device)
            for rotary in dict.fromkeys(layer.rotary for layer in spec.layers)
        }

    @property
    def vocab_size(self) -> int:
        return self._spec.vocab_size

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        *,
        attention: AttentionBackend[PlanT],
        plan: PlanT,
    ) -> Tensor:
        """token_ids and positions: [M] long -> hidden states [M, hidden] float32, not normed."""
        # The sum over layers stays in float32: in bfloat16 it would lose a third more of the
        # distribution (mean KL 0.0013 instead of 0.0009 over 2,000 tokens), at the same speed.
        x = F.embedding(token_ids, self._weights.embedding).float() * self._spec.embedding_scale
        rotations = {
            rotary: (cos[positions][:, None], sin[positions][:, None])
            for rotary, (cos, sin) in self._tables.items()
        }
        for index, layer in enumerate(self._weights.layers):
            rotation = rotations[self._spec.layers[index].rotary]
            q, k, v = self._project(layer, x, rotation)
            attended = self._attention_output(layer, attention.run(plan, index, q=q, k=k, v=v))
            x = x + self._post_norm(attended, layer.post_attention_norm)
            x = x + self._post_norm(self._feed_forward(layer, x), layer.post_ffn_norm)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [S, hidden] -> [S, V] float32."""
        logits = self._weights.output(self._norm(hidden, self._weights.final_norm)).float()
        cap = self._spec.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _project(
        self, layer: LayerWeights, x: Tensor, rotation: Rotation
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q: [M, H, d], k and v: [M, G, d]."""
        num_heads, num_kv_heads = self._spec.num_heads, self._spec.num_kv_heads
        qkv = layer.qkv(self._norm(x, layer.attention_norm))
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        heads = qkv.view(x.shape[0], num_heads + 2 * num_kv_heads, self._spec.head_dim)
        qk, v = torch.split(heads, [num_heads + num_kv_heads, num_kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = torch.split(qk, [num_heads, num_kv_heads], dim=1)
            normed = self._rms_norm(q, layer.q_norm), self._rms_norm(k, layer.k_norm)
            qk = torch.cat(normed, dim=1)
        rotated = _rotate(qk, *rotation).to(v.dtype)
        q, k = torch.split(rotated, [num_heads, num_kv_heads], dim=1)
        return q, k, v

    def _attention_output(self, layer: LayerWeights, attended: Tensor) -> Tensor:
        output = layer.attention_output(attended)
        return (
            output if layer.attention_output_bias is None else output + layer.attention_output_bias
        )

    def _feed_forward(self, layer: LayerWeights, x: Tensor) -> Tensor:
        normed = self._norm(x, layer.ffn_norm)
        if layer.router is None:
            return self._gated(layer.ffns[0], normed)
        scores, experts = self._route(layer.router(normed))
        result = torch.zeros_like(x)
        for expert in sorted(set(experts.flatten().tolist())):
            rows, places = torch.nonzero(experts == expert, as_tuple=True)
            output = self._gated(layer.ffns[expert], normed[rows])
            result.index_add_(0, rows, output.float() * scores[rows, places, None])
        return result

    def _route(self, router_logits: Tensor) -> tuple[Tensor, Tensor]:
        """router_logits: [M, experts] -> weights (float32) and numbers of those used."""
        spec = self._spec.experts
        assert spec is not None, "a layer with a router has experts"
        scores, experts = router_logits.float().softmax(-1).topk(spec.num_used, dim=-1)
        return scores / scores.sum(-1, keepdim=True) if spec.normalize else scores, experts

    def _gated(self, ffn: FeedForwardWeights, x: Tensor) -> Tensor:
        gate, up = ffn.gate_up(x).chunk(2, dim=-1)
        if self._spec.activation == "silu":
            return ffn.down(F.silu(gate) * up)
        return ffn.down(F.gelu(gate, approximate="tanh") * up)

    def _post_norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else self._rms_norm(x, weight)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._rms_norm(x, weight).to(self._weights.embedding.dtype)

    def _rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), weight.shape, weight, self._spec.norm_eps)


def rotary_table(rotary: RotarySpec, max_position: int, *, device: torch.device) -> Rotation:
    """cos and sin of every angle, [max_position, d] float32, the two halves of a head alike."""
    frequencies = torch.tensor(rotary.inverse_frequencies, dtype=torch.float32)
    angles = torch.arange(max_position).float()[:, None] * frequencies
    angles = torch.cat((angles, angles), dim=-1).to(device)
    magnitudes = torch.tensor(rotary.magnitudes * 2, device=device)
    return angles.cos() * magnitudes, angles.sin() * magnitudes


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (i, i + d / 2) of each head. x: [M, heads, d] -> float32."""
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return wide * cos + torch.cat((-second, first), dim=-1) * sin
