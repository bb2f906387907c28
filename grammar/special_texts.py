"""A tokenizer.json in which no text stands for a special token.

llguidance tokenizes what a grammar forces. Where that text reads like a special token it would
take the token, which has no text, for the only way on. It holds every added token in angle
brackets for special (Qwen's <tool_call>, Gemma's <table>), whatever the file says; inside a
constrained output such text is spelled with other tokens.
"""

import json
from typing import Any

# Noncharacters, which occur in no text.
OPEN, CLOSE = "\ufdd0", "\ufdd1"


def without_special_texts(tokenizer_json: str) -> str:
    """Ids and all other tokens stay as they are."""
    document = json.loads(tokenizer_json)
    renamed: dict[str, str] = {}
    for token in document.get("added_tokens") or ():
        if is_hidden(token["content"], is_special=token["special"]):
            token["special"] = True
            renamed[token["content"]] = f"{OPEN}{token['id']}{CLOSE}"
            token["content"] = renamed[token["content"]]
    vocab: Any = document["model"].get("vocab")
    if isinstance(vocab, dict):
        document["model"]["vocab"] = {renamed.get(text, text): vocab[text] for text in vocab}
    elif isinstance(vocab, list):  # Unigram: [token, score] in the order of ids
        document["model"]["vocab"] = [[renamed.get(text, text), score] for text, score in vocab]
    return json.dumps(document)


def is_hidden(text: str, *, is_special: bool) -> bool:
    """Whether an added token has no text for a grammar, which can only name it by its id."""
    return is_special or (text.startswith("<") and text.endswith(">"))
