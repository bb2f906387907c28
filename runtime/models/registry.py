"""Which architectures there are: the names in files, and the module that knows each."""

from collections.abc import Callable, Mapping

from runtime.models import llama
from runtime.models.blueprint import Blueprint
from runtime.models.gguf_metadata import GgufMetadata
from runtime.models.model_config import ModelConfig

# general.architecture of a GGUF file.
GGUF_ARCHITECTURES: Mapping[str, Callable[[GgufMetadata], Blueprint]] = {
    "llama": llama.from_gguf,
}
# model_type of a config.json.
MODEL_TYPES: Mapping[str, Callable[[ModelConfig], Blueprint]] = {
    "llama": llama.from_config,
}
