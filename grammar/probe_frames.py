"""What a probe and its child say to each other: length-prefixed msgpack frames over two pipes."""

import msgspec

from grammar.spec import ConstraintSpec, PreparedConstraint

LENGTH_BYTES = 4


class Setup(msgspec.Struct, frozen=True, tag=True):
    """First frame to a child: the vocabulary (megabytes, hence once), and its memory limit."""

    tokenizer_json: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    memory_limit_bytes: int


class Job(msgspec.Struct, frozen=True, tag=True):
    """One constraint to be compiled."""

    spec: ConstraintSpec


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The child has loaded what it needs: after Setup, and again before it works on a job,
    so that the time limit of a job does not count the import of a library."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot be loaded for this vocabulary; no constraint is to blame."""

    reason: str


class Verdict(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The outcome of a job. `prepared` is there if it compiles and has a first mask, otherwise
    `reason`."""

    compile_ms: float
    prepared: PreparedConstraint | None = None
    reason: str | None = None
    pointer: str = ""
    keyword: str | None = None
    out_of_memory: bool = False


ToChild = Setup | Job
FromChild = Ready | Broken | Verdict

_encoder = msgspec.msgpack.Encoder()
_to_child = msgspec.msgpack.Decoder(ToChild)
_from_child = msgspec.msgpack.Decoder(FromChild)


def encode(message: ToChild | FromChild) -> bytes:
    """The frame, length first."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def body_length(prefix: bytes) -> int:
    return int.from_bytes(prefix, "big")


def decode_to_child(body: bytes) -> ToChild:
    return _to_child.decode(body)


def decode_from_child(body: bytes) -> FromChild:
    return _from_child.decode(body)
