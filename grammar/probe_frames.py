"""What a probe and its child say to each other: length-prefixed msgpack frames over two pipes."""

import msgspec

from grammar.spec import ConstraintSpec, PreparedConstraint

LENGTH_BYTES = 4


class Setup(msgspec.Struct, frozen=True, tag=True):
    """First frame to a child: the vocabulary (megabytes, hence once), and its memory limit. The
    jobs of a quick child are done at the lowest priority that still gets on beside others, those
    of another one in time that nobody else wants."""

    tokenizer_json: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    memory_limit_bytes: int
    is_quick: bool = True


class TimeLimits(msgspec.Struct, frozen=True):
    """Seconds of computing, and seconds on the clock, which a busy machine makes longer."""

    cpu_s: float
    wall_s: float


class Job(msgspec.Struct, frozen=True, tag=True):
    """One constraint to be compiled. The number is its child's own."""

    number: int
    spec: ConstraintSpec
    limits: TimeLimits


class Ready(msgspec.Struct, frozen=True, tag=True):
    """After Setup: the child has loaded what it needs."""


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The job of this number was read; a verdict or a death follows."""

    number: int


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot be loaded for this vocabulary; no constraint is to blame."""

    reason: str


class Died(msgspec.Struct, frozen=True, tag=True):
    """The process that worked is gone, by this signal (0 = it left by itself); another takes the
    next job."""

    signal: int


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
FromChild = Ready | Begun | Broken | Died | Verdict

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
    """Raises: msgspec.DecodeError for what is no frame."""
    return _from_child.decode(body)
