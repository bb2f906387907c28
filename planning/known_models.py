"""Models that `radixgate plan` knows by name. The sizes are those of each config.json; a test
compares the weights counted from them with the number that is published with the model."""

from collections.abc import Mapping

from planning.errors import PlanError
from planning.model_facts import DecoderSizes, ModelFacts


def _every(period: int, window: int, num_layers: int) -> tuple[int | None, ...]:
    """Each `period`-th layer sees all tokens, the others a window."""
    return tuple(None if (i + 1) % period == 0 else window for i in range(num_layers))


def _llama(
    num_layers: int, hidden: int, heads: tuple[int, int], ffn: int, *, tied: bool = False
) -> DecoderSizes:
    """Llama 3.1 to 3.3: 128,256 tokens, contexts of 131,072."""
    return DecoderSizes(
        hidden_size=hidden,
        num_layers=num_layers,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=64 if hidden == 2048 else 128,
        ffn_size=ffn,
        vocab_size=128_256,
        max_context=131_072,
        tied_embeddings=tied,
    )


def _llama2(num_layers: int, hidden: int, heads: tuple[int, int], ffn: int) -> DecoderSizes:
    """Llama 2 and the first Mistrals: 32,000 tokens."""
    return DecoderSizes(
        hidden_size=hidden,
        num_layers=num_layers,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=128,
        ffn_size=ffn,
        vocab_size=32_000,
        max_context=4096,
    )


def _qwen2(
    num_layers: int, hidden: int, heads: tuple[int, int], ffn: int, *, tied: bool = False
) -> DecoderSizes:
    """Qwen 2.5: a bias on q, k and v; the smaller models have fewer rows in the embedding."""
    return DecoderSizes(
        hidden_size=hidden,
        num_layers=num_layers,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=hidden // heads[0],
        ffn_size=ffn,
        vocab_size=151_936 if tied else 152_064,
        max_context=32_768,
        tied_embeddings=tied,
        has_qkv_bias=True,
    )


def _qwen3(
    num_layers: int,
    hidden: int,
    heads: tuple[int, int],
    ffn: int,
    *,
    tied: bool = False,
    expert_ffn: int = 0,
) -> DecoderSizes:
    """Qwen 3: norms on the heads of q and k; with experts 128, of which 8 are used."""
    return DecoderSizes(
        hidden_size=hidden,
        num_layers=num_layers,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=128,
        ffn_size=ffn,
        vocab_size=151_936,
        max_context=40_960,
        tied_embeddings=tied,
        has_qk_norm=True,
        num_experts=128 if expert_ffn else 0,
        num_used=8 if expert_ffn else 0,
        expert_ffn_size=expert_ffn,
    )


def _gpt_oss(num_layers: int, num_experts: int) -> DecoderSizes:
    """Every second layer sees 128 tokens; experts in MXFP4, 4.25 bits a weight."""
    return DecoderSizes(
        hidden_size=2880,
        num_layers=num_layers,
        num_heads=64,
        num_kv_heads=8,
        head_dim=64,
        ffn_size=0,
        vocab_size=201_088,
        max_context=131_072,
        has_qkv_bias=True,
        has_output_bias=True,
        has_sinks=True,
        num_experts=num_experts,
        num_used=4,
        expert_ffn_size=2880,
        has_expert_bias=True,
        expert_bits=4.25,
        windows=tuple(128 if i % 2 == 0 else None for i in range(num_layers)),
    )


_MISTRAL_7B = DecoderSizes(
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    ffn_size=14_336,
    vocab_size=32_768,
    max_context=32_768,
)
_MIXTRAL = DecoderSizes(
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    ffn_size=0,
    vocab_size=32_000,
    max_context=32_768,
    num_experts=8,
    num_used=2,
    expert_ffn_size=14_336,
)
_GEMMA_3_27B = DecoderSizes(
    hidden_size=5376,
    num_layers=62,
    num_heads=32,
    num_kv_heads=16,
    head_dim=128,
    ffn_size=21_504,
    vocab_size=262_208,
    max_context=131_072,
    tied_embeddings=True,
    has_qk_norm=True,
    has_post_norms=True,
    windows=_every(6, 1024, 62),
)
_PHI_4 = DecoderSizes(
    hidden_size=5120,
    num_layers=40,
    num_heads=40,
    num_kv_heads=10,
    head_dim=128,
    ffn_size=17_920,
    vocab_size=100_352,
    max_context=16_384,
)
_SMOLLM2 = DecoderSizes(
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    ffn_size=1536,
    vocab_size=49_152,
    max_context=8192,
    tied_embeddings=True,
)

# By the name without the publisher: the repository whose config.json has the sizes, and these.
KNOWN_MODELS: Mapping[str, tuple[str, DecoderSizes]] = {
    "smollm2-135m": ("HuggingFaceTB/SmolLM2-135M-Instruct", _SMOLLM2),
    "llama-2-7b": ("meta-llama/Llama-2-7b-hf", _llama2(32, 4096, (32, 32), 11_008)),
    "llama-2-70b": ("meta-llama/Llama-2-70b-hf", _llama2(80, 8192, (64, 8), 28_672)),
    "llama-3.2-1b": ("meta-llama/Llama-3.2-1B", _llama(16, 2048, (32, 8), 8192, tied=True)),
    "llama-3.2-3b": ("meta-llama/Llama-3.2-3B", _llama(28, 3072, (24, 8), 8192, tied=True)),
    "llama-3.1-8b": ("meta-llama/Llama-3.1-8B", _llama(32, 4096, (32, 8), 14_336)),
    "llama-3.1-70b": ("meta-llama/Llama-3.1-70B", _llama(80, 8192, (64, 8), 28_672)),
    "llama-3.3-70b": ("meta-llama/Llama-3.3-70B-Instruct", _llama(80, 8192, (64, 8), 28_672)),
    "llama-3.1-405b": ("meta-llama/Llama-3.1-405B", _llama(126, 16_384, (128, 8), 53_248)),
    "qwen2.5-0.5b": ("Qwen/Qwen2.5-0.5B", _qwen2(24, 896, (14, 2), 4864, tied=True)),
    "qwen2.5-7b": ("Qwen/Qwen2.5-7B-Instruct", _qwen2(28, 3584, (28, 4), 18_944)),
    "qwen2.5-14b": ("Qwen/Qwen2.5-14B-Instruct", _qwen2(48, 5120, (40, 8), 13_824)),
    "qwen2.5-32b": ("Qwen/Qwen2.5-32B-Instruct", _qwen2(64, 5120, (40, 8), 27_648)),
    "qwen2.5-72b": ("Qwen/Qwen2.5-72B-Instruct", _qwen2(80, 8192, (64, 8), 29_568)),
    "qwen3-0.6b": ("Qwen/Qwen3-0.6B", _qwen3(28, 1024, (16, 8), 3072, tied=True)),
    "qwen3-8b": ("Qwen/Qwen3-8B", _qwen3(36, 4096, (32, 8), 12_288)),
    "qwen3-14b": ("Qwen/Qwen3-14B", _qwen3(40, 5120, (40, 8), 17_408)),
    "qwen3-32b": ("Qwen/Qwen3-32B", _qwen3(64, 5120, (64, 8), 25_600)),
    "qwen3-30b-a3b": ("Qwen/Qwen3-30B-A3B", _qwen3(48, 2048, (32, 4), 0, expert_ffn=768)),
    "qwen3-235b-a22b": ("Qwen/Qwen3-235B-A22B", _qwen3(94, 4096, (64, 4), 0, expert_ffn=1536)),
    "mistral-7b": ("mistralai/Mistral-7B-Instruct-v0.3", _MISTRAL_7B),
    "mixtral-8x7b": ("mistralai/Mixtral-8x7B-Instruct-v0.1", _MIXTRAL),
    "gemma-3-27b": ("google/gemma-3-27b-it", _GEMMA_3_27B),
    "phi-4": ("microsoft/phi-4", _PHI_4),
    "gpt-oss-20b": ("openai/gpt-oss-20b", _gpt_oss(24, 32)),
    "gpt-oss-120b": ("openai/gpt-oss-120b", _gpt_oss(36, 128)),
}


def known_model(name: str) -> ModelFacts:
    """Raises: PlanError for a name that is not in the table."""
    found = KNOWN_MODELS.get(name)
    if found is None:
        raise PlanError(f"{name!r} is no known model; known: {', '.join(sorted(KNOWN_MODELS))}")
    repository, sizes = found
    return sizes.facts(name, f"https://huggingface.co/{repository}/blob/main/config.json")
