"""What a bench and its child say to each other: length-prefixed msgpack frames over two pipes."""

from typing import BinaryIO, Literal

import msgspec

from grammar.bench_file import BenchCase
from grammar.probe_frames import TimeLimits
from grammar.spec import EngineChoice, Gap

LENGTH_BYTES = 4

Treatment = Literal["enforced", "checked", "refused"]
KeywordTreatment = Literal["enforced", "checked", "annotation", "refused"]


class Setup(msgspec.Struct, frozen=True, tag=True):
    """First frame to a child: the vocabulary, and what all its jobs have in common."""

    tokenizer_json: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    engine: EngineChoice
    allows_checked: bool
    memory_limit_bytes: int
    limits: TimeLimits


class Job(msgspec.Struct, frozen=True, tag=True):
    """One schema to be compiled, its instances to be walked, its keywords to be explained."""

    case: BenchCase
    wants_notes: bool = False


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The child has loaded its libraries."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot be loaded for this vocabulary."""

    reason: str


class Compiled(msgspec.Struct, frozen=True, tag=True):
    """First answer to a job. `compile_ms` runs from the schema's text to the first mask, or to the
    refusal, which has a `reason` and the place of the keyword."""

    treatment: Treatment
    compile_ms: float
    engine: str = ""
    gaps: tuple[Gap, ...] = ()
    reason: str = ""
    pointer: str = ""
    keyword: str | None = None


class KeywordNote(msgspec.Struct, frozen=True):
    """What becomes of one keyword of a schema."""

    pointer: str
    keyword: str
    treatment: KeywordTreatment
    reason: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """Whether an instance was accepted; None with a `reason` where it could not be tried."""

    is_accepted: bool | None
    reason: str = ""


class Walked(msgspec.Struct, frozen=True, tag=True):
    """Second answer: an outcome for each instance, and the time of every mask as uint32 ns."""

    outcomes: tuple[Outcome, ...] = ()
    mask_ns: bytes = b""
    notes: tuple[KeywordNote, ...] = ()


Message = Setup | Job | Ready | Broken | Compiled | Walked

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The frame, length first."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decode(body: bytes) -> Message:
    return _decoder.decode(body)


def read_message(stream: BinaryIO) -> Message | None:
    """The next message; None at the end of the stream."""
    prefix = stream.read(LENGTH_BYTES)
    if len(prefix) < LENGTH_BYTES:
        return None
    return decode(stream.read(int.from_bytes(prefix, "big")))
