"""What a model file says about text: handed from the model's file to gateway and grammar."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TextAssets:
    """Tokenizer, template and special tokens of one model.

    `tokenizer_json` is the text of a Hugging Face tokenizer.json (built from the vocabulary of a
    GGUF file). `vocab_size` is the width of the logits and may exceed the tokenizer's.
    `special_tokens` maps bos_token, eos_token, unk_token, pad_token to their text, for templates.
    `max_position` is the context the model was trained for, in tokens.
    """

    tokenizer_json: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    add_bos: bool
    chat_template: str | None
    max_position: int
    special_tokens: dict[str, str] = field(default_factory=dict)
