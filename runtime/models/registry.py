"""Which architectures there are: the names in files, and the module that knows each."""

from collections.abc import Callable, Mapping

from runtime.models import gemma3, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import ModelConfig

# general.architecture of a GGUF file.
GGUF_ARCHITECTURES: Mapping[str, Callable[[GgufMetadata], Blueprint]] = {
    "gemma3": gemma3.from_gguf,
    "llama": llama.from_gguf,
    "phi3": phi3.from_gguf,
    "qwen2": qwen2.from_gguf,
    "qwen3": qwen3.from_gguf,
    "qwen3moe": qwen3_moe.from_gguf,
}
# model_type of a config.json.
MODEL_TYPES: Mapping[str, Callable[[ModelConfig], Blueprint]] = {
    "gemma3": gemma3.from_config,
    "gemma3_text": gemma3.from_config,
    "llama": llama.from_config,
    "mistral": mistral.from_config,
    "mixtral": mixtral.from_config,
    "phi3": phi3.from_config,
    "qwen2": qwen2.from_config,
    "qwen3": qwen3.from_config,
    "qwen3_moe": qwen3_moe.from_config,
}
