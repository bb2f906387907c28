"""What a probe has found out, as much as fits; owned by the probe."""

from collections import OrderedDict
from collections.abc import Callable

from grammar.errors import ConstraintTooExpensive
from grammar.probe_frames import Verdict

# Keys, objects and references of an entry, beside its texts.
ENTRY_BYTES = 1024
# Long enough that a client that tries again at once costs nothing, short enough that a schema
# which only a busy machine was too slow for is soon tried again.
TOO_EXPENSIVE_S = 30.0
MAX_TOO_EXPENSIVE = 1024


class VerdictCache:
    """By the digest of the constraint. It lives as long as the process, in which there is one
    tokenizer and one version of each engine, so that the key need not name them."""

    def __init__(self, max_bytes: int, *, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._verdicts: OrderedDict[str, Verdict] = OrderedDict()
        self._too_expensive: OrderedDict[str, tuple[float, ConstraintTooExpensive]] = OrderedDict()
        self.num_bytes = 0

    def get(self, key: str) -> Verdict | None:
        """Raises: ConstraintTooExpensive for what passed a limit a short time ago."""
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self._verdicts.move_to_end(key)
            return verdict
        until, error = self._too_expensive.get(key, (0.0, None))
        if error is not None:
            if self._clock() < until:
                raise ConstraintTooExpensive(error.limit)
            del self._too_expensive[key]
        return None

    def put(self, key: str, verdict: Verdict) -> None:
        """The least recently used go first; a verdict larger than the cache is not kept."""
        replaced = self._verdicts.pop(key, None)
        if replaced is not None:
            self.num_bytes -= _size(replaced)
        self._verdicts[key] = verdict
        self.num_bytes += _size(verdict)
        while self.num_bytes > self._max_bytes:
            _, oldest = self._verdicts.popitem(last=False)
            self.num_bytes -= _size(oldest)

    def put_too_expensive(self, key: str, error: ConstraintTooExpensive) -> None:
        self._too_expensive[key] = (self._clock() + TOO_EXPENSIVE_S, error)
        self._too_expensive.move_to_end(key)
        if len(self._too_expensive) > MAX_TOO_EXPENSIVE:
            self._too_expensive.popitem(last=False)


def _size(verdict: Verdict) -> int:
    texts = [verdict.reason or "", verdict.pointer]
    if verdict.prepared is not None:
        texts.append(verdict.prepared.grammar)
        for gap in verdict.prepared.gaps:
            texts += [gap.pointer, gap.keyword, gap.reason]
    return ENTRY_BYTES + sum(map(len, texts))
