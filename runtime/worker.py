"""The runtime process: `python -m runtime.worker '{"address": "tcp://127.0.0.1:5700", ...}'`.

Its one argument is WorkerOptions as JSON: where to listen, what to load, whose child it is.
SIGTERM and SIGINT end it after the current step. A supervisor's child ignores them: terminals and
service managers send them to the whole group, and its gateway drains first. It is ended by
SUPERVISOR_SIGNAL. A model that cannot be loaded is exit code 3 and one line: in the file that the
supervisor named, or else on stderr and as a goodbye to whoever asks.
"""

import contextlib
import gc
import logging
import signal
import socket as unix_sockets
import sys
import time
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zmq

from runtime import wire
from runtime.config import RuntimeConfig
from runtime.errors import ConfigError, RuntimePackageError
from runtime.loop import Doorbell, RuntimeLoop
from runtime.messages import EngineInfo, Goodbye
from runtime.orphans import die_with_parent, is_orphan
from runtime.worker_options import (
    EXIT_BAD_ARGUMENT,
    EXIT_LOAD_FAILED,
    SUPERVISOR_SIGNAL,
    WorkerOptions,
)
from telemetry.logs import configure_logging

if TYPE_CHECKING:
    from types import FrameType

    from runtime.engine import Engine
    from runtime.model_runner import LoadedModel
    from runtime.model_source import ModelSource

logger = logging.getLogger("runtime.worker")

# How long a failed load waits for its gateway's greeting, to say why.
GOODBYE_WAIT_S = 2.0
GOODBYE_LINGER_MS = 1000


class StopSwitch:
    """Thrown by the signal to stop or by the parent's death; ends the loop between two steps."""

    def __init__(self, parent_pid: int | None) -> None:
        self._parent_pid = parent_pid
        self._is_thrown = False

    def on_signal(self, _signal: int, _frame: "FrameType | None") -> None:
        self._is_thrown = True

    def is_thrown(self) -> bool:
        return self._is_thrown or is_orphan(self._parent_pid)


def main(arguments: list[str]) -> int:
    """Runs until told to stop; returns the exit code."""
    try:
        options = msgspec.json.decode(" ".join(arguments), type=WorkerOptions)
    except msgspec.DecodeError as error:
        return _complain(f"the options must be one JSON object: {error}", EXIT_BAD_ARGUMENT)
    # Without a parent a signal that comes while the model is loaded ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if options.parent_pid is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        die_with_parent()
        if is_orphan(options.parent_pid):
            return 0
    configure_logging(options.log_level, json_lines=options.log_json)
    warnings.filterwarnings("ignore", module=r"(torch|transformers)(\.|$)")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        return _serve(context, options)
    finally:
        context.destroy()


def _serve(context: "zmq.Context[zmq.Socket[bytes]]", options: WorkerOptions) -> int:
    # Bound before the model is loaded, so that greetings wait here instead of being refused.
    try:
        socket = _bind(context, options.address)
    except RuntimePackageError as error:
        return _fail(options, str(error))
    with contextlib.closing(Doorbell()) as doorbell:
        try:
            engine, info = build_engine(options.config, options.engine_id, doorbell=doorbell)
        except RuntimePackageError as error:
            if options.failure_path is None:
                _say_goodbye(socket, str(error))
            return _fail(options, str(error))
        _run_loop(options, socket=socket, engine=engine, info=info, doorbell=doorbell)
    return 0


def _run_loop(
    options: WorkerOptions,
    *,
    socket: zmq.Socket[bytes],
    engine: "Engine",
    info: EngineInfo,
    doorbell: Doorbell,
) -> None:
    loop = RuntimeLoop(
        socket=socket,
        engine=engine,
        info=info,
        gateway_timeout_s=options.config.gateway_timeout_s,
        doorbell=doorbell,
    )
    _log_ready(info, options.address)
    switch = StopSwitch(options.parent_pid)
    is_child = options.parent_pid is not None
    for number in (SUPERVISOR_SIGNAL,) if is_child else (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, switch.on_signal)
    signal.set_wakeup_fd(doorbell.write_fd, warn_on_full_buffer=False)
    # What is loaded lives as long as the process: no collection shall walk it in the midst of a
    # step (up to 15 ms).
    gc.collect()
    gc.freeze()
    loop.run(switch.is_thrown)
    signal.set_wakeup_fd(-1)
    engine.close()


def build_engine(
    config: RuntimeConfig, engine_id: str, *, doorbell: Doorbell
) -> "tuple[Engine, EngineInfo]":
    """Loads the model and puts the engine together. Raises: ModelError, ConfigError."""
    # Imported step by step: a model that is not there must be an answer at once, and torch
    # takes more than a second.
    from runtime.model_source import open_model

    source = open_model(config.model)
    from grammar.matcher import Vocabulary
    from prefix_cache import PrefixCache
    from prefix_cache.evicted_log import EvictedLog
    from runtime.engine import Engine
    from runtime.grammar_builder import GrammarBuilder
    from runtime.model_runner import load_executor
    from runtime.open_tiers import StoredKv, open_tiers, take_redis_url

    loaded = load_executor(source, config)
    info = engine_info(engine_id, source, loaded, config)
    kv = StoredKv(
        kv_root=loaded.kv_root,
        page_size=loaded.page_size,
        page_bytes=loaded.page_bytes,
        kv_dtype=loaded.kv_dtype,
        device=loaded.device,
        incarnation=info.incarnation,
    )
    tiers = open_tiers(config.tiers, kv, redis_url=take_redis_url(), ring=doorbell.ring)
    evicted = EvictedLog()
    cache = PrefixCache(
        num_pages=loaded.num_pages,
        page_size=loaded.page_size,
        pin_share=config.pin_share,
        identity_root=tiers.root if tiers is not None else None,
        observer=evicted,
    )
    vocabulary = Vocabulary(source.text.tokenizer_json, loaded.vocab_size, info.eos_token_ids)
    engine = Engine(
        executor=loaded.executor,
        cache=cache,
        evicted=evicted,
        info=info,
        config=config,
        grammar=GrammarBuilder(vocabulary, on_ready=doorbell.ring),
        tiers=tiers,
    )
    return engine, info


def engine_info(
    engine_id: str, source: "ModelSource", loaded: "LoadedModel", config: RuntimeConfig
) -> EngineInfo:
    """What gateways are told of a loaded model, under an incarnation of its own."""
    return EngineInfo(
        engine_id=engine_id,
        incarnation=uuid.uuid4().hex,
        model_hash=source.content_hash(),
        architecture=source.architecture,
        dtype=loaded.dtype,
        device=loaded.device,
        vocab_size=loaded.vocab_size,
        eos_token_ids=tuple(source.text.eos_token_ids),
        max_model_len=loaded.max_model_len,
        page_size=loaded.page_size,
        num_pages=loaded.num_pages,
        max_running=config.max_running,
        kv_root=loaded.kv_root,
        page_bytes=loaded.page_bytes,
    )


def _bind(context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.ROUTER)
    wire.configure_router(socket)
    if _is_answered(address):
        raise ConfigError(f"cannot listen on {address}: another runtime does")
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise ConfigError(f"cannot listen on {address}: {error.strerror}") from None
    return socket


def _is_answered(address: str) -> bool:
    """Whether somebody listens at a path: ZeroMQ would take it from them without a word. One that
    was left behind may be taken."""
    scheme, _, path = address.partition("://")
    if scheme != "ipc":
        return False
    with unix_sockets.socket(unix_sockets.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _say_goodbye(socket: zmq.Socket[bytes], reason: str) -> None:
    """Answers everyone who has greeted; waits a moment for the first who does."""
    socket.setsockopt(zmq.LINGER, GOODBYE_LINGER_MS)
    frame = wire.encode(Goodbye(reason))
    deadline = time.monotonic() + GOODBYE_WAIT_S
    wait_ms = int(GOODBYE_WAIT_S * 1000)
    while time.monotonic() < deadline and socket.poll(wait_ms):
        identity = socket.recv_multipart()[0]
        with contextlib.suppress(zmq.ZMQError):  # gone, or it does not read: both are its choice
            socket.send_multipart((identity, frame), zmq.NOBLOCK)
        wait_ms = 0


def _log_ready(info: EngineInfo, address: str) -> None:
    logger.info(
        "serving %s (%s, %s on %s) on %s: %d pages of %d tokens, incarnation %s",
        info.engine_id,
        info.architecture,
        info.dtype,
        info.device,
        address,
        info.num_pages,
        info.page_size,
        info.incarnation,
    )


def _fail(options: WorkerOptions, reason: str) -> int:
    """A supervisor is told through the file, and says it itself, in one line: a message could be
    overtaken by the exit."""
    if options.failure_path is not None:
        try:
            Path(options.failure_path).write_text(reason, encoding="utf-8")
        except OSError as error:
            logger.warning("cannot write %s: %s", options.failure_path, error.strerror)
        else:
            return EXIT_LOAD_FAILED
    return _complain(reason, EXIT_LOAD_FAILED)


def _complain(line: str, exit_code: int) -> int:
    sys.stderr.write(f"radixgate runtime: {line}\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
