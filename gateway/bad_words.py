"""From words that an answer must not have to the sequences of tokens that would spell them."""

from collections.abc import Sequence

from gateway.tokenizer import Tokenizer


def bad_word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as the tokenizer reads it alone and after a space, each sequence once. Other
    spellings (another case, pieces that cross the word's ends) are other words.

    Raises: InvalidRequest for a word that is no Unicode.
    """
    spellings = (text for word in words for text in (word, f" {word.lstrip()}"))
    found = (tuple(tokenizer.encode(t, add_special=False, param="bad_words")) for t in spellings)
    return tuple(dict.fromkeys(token_ids for token_ids in found if token_ids))
