"""How messages become ZeroMQ frames, and how the two sockets of a runtime are set up.

A gateway's DEALER sends one frame per message; a runtime's ROUTER sees [identity, frame]. Both
ends trust the network between them: bind to a private path or a network of your own.
Holds no state of a conversation (runtime.loop and runtime.remote_engine do).
"""

import logging
import os
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import zmq

from runtime.messages import PROTOCOL_VERSION, ToGateway, ToRuntime

if TYPE_CHECKING:
    from pathlib import Path

# A prompt of a million token ids takes 5 MB. A peer that sends more than this is disconnected.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# Messages that may wait for a slow peer before the sender is told that its queue is full.
MAX_QUEUED_MESSAGES = 10_000

# sockaddr_un holds 108 bytes, one of them the terminating zero.
MAX_IPC_PATH_BYTES = 107

MessageT = TypeVar("MessageT")

_encoder = msgspec.msgpack.Encoder()
_to_runtime = msgspec.msgpack.Decoder(ToRuntime)
_to_gateway = msgspec.msgpack.Decoder(ToGateway)


class UndecodableFrame(ValueError):
    """Bytes that are no message of this protocol."""


def encode(message: ToRuntime | ToGateway) -> bytes:
    """One message as one frame."""
    return _encoder.encode(message)


def decode_for_runtime(frame: bytes) -> ToRuntime:
    """What a gateway sent. Raises: UndecodableFrame, whatever the bytes are."""
    return _decode(_to_runtime, frame)


def decode_for_gateway(frame: bytes) -> ToGateway:
    """What a runtime sent. Raises: UndecodableFrame, whatever the bytes are."""
    return _decode(_to_gateway, frame)


def _decode(decoder: msgspec.msgpack.Decoder[MessageT], frame: bytes) -> MessageT:
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UndecodableFrame(str(error)) from None


def protocol_mismatch(peer_version: int) -> str | None:
    """One line for the operator if the peer speaks another protocol, None if it fits."""
    if peer_version == PROTOCOL_VERSION:
        return None
    return (
        f"protocol version {peer_version} does not fit version {PROTOCOL_VERSION}: "
        "run the same radixgate release on both sides"
    )


def configure_router(socket: zmq.Socket[Any]) -> None:
    """Options of a runtime's socket: a full or vanished peer is an error at send, not silence."""
    _configure(socket)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)


def configure_dealer(socket: zmq.Socket[Any]) -> None:
    """Options of a gateway's socket: nothing is queued for a runtime that is not connected, so
    a runtime that comes back never gets requests meant for the one before."""
    _configure(socket)
    socket.setsockopt(zmq.IMMEDIATE, 1)


def _configure(socket: zmq.Socket[Any]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, MAX_QUEUED_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, MAX_QUEUED_MESSAGES)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)


def new_ipc_address(folder: "Path") -> str:
    """A fresh address in `folder`. Raises: ValueError if the path is too long for a socket."""
    path = folder / uuid.uuid4().hex[:12]
    if len(os.fsencode(path)) > MAX_IPC_PATH_BYTES:
        raise ValueError(f"{path} is longer than the {MAX_IPC_PATH_BYTES} bytes of a socket path")
    return f"ipc://{path}"


class GarbageCounter:
    """Counts frames that were ignored; logs the 1st, 2nd, 4th, 8th … so that a flood of them
    cannot fill a disk."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.count = 0

    def add(self, peer: str, reason: str) -> None:
        self.count += 1
        if self.count & (self.count - 1) == 0:
            self._logger.warning(
                "ignored a frame from %s (%s); %d ignored so far", peer, reason, self.count
            )
