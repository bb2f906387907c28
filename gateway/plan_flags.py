"""The flags of `radixgate plan`."""

import argparse
import math
import re

from gateway.flag_times import seconds_of
from planning.machine import Assumptions

KV_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4": 4}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)([kmbt]?)", re.IGNORECASE)
# Nothing that is asked for here is smaller or larger: formulas of what is within cannot overflow.
_LEAST, _MOST = 1e-9, 1e9
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def add_flags(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command `plan` with all its flags."""
    parser = commands.add_parser(
        "plan",
        help="how many GPUs a model and a load need, how fast that is and what it costs",
        description="Computes from sizes and data sheets what fits, how fast it can be, what limits"
        " it and what would help. Nothing is run, but --cpu measures this machine for some seconds."
        " docs/plan.md has every formula. Exit code 0: a plan, 1: this cannot be done, 2: what was"
        " given contradicts itself.",
    )
    _add_model_flags(parser)
    _add_device_flags(parser)
    _add_load_flags(parser)
    _add_assumptions(parser)
    parser.add_argument("--json", action="store_true", help="the plan as one JSON object")
    parser.add_argument("--list", action="store_true", help="the models and GPUs known by name")


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the model").add_argument
    add("--model", help="a GGUF file, a folder, a known name, or org/name on the hub")
    add(
        "--params", type=_amount, metavar="N", help="its weights (8.03b), in place of --model, with"
    )
    add("--layers", type=_count, metavar="N")
    add("--hidden", type=_count, metavar="N", help="the hidden size")
    add("--heads", type=_count, metavar="N", help="query heads")
    add("--kv-heads", type=_count, metavar="N", help="KV heads (default: as many as heads)")
    add("--head-dim", type=_count, metavar="N", help="size of a head (default: hidden / heads)")
    add("--vocab", type=_count, metavar="N", help="rows of the embedding")
    add("--tied", action="store_true", help="the output is the embedding")
    add("--window", type=_count, metavar="N", help="tokens that attention reaches back")
    add("--context", type=_count, metavar="N", help="the longest context it can have")
    add("--experts", type=_count, metavar="N", help="experts of a layer, with")
    add("--experts-used", type=_count, metavar="N")
    add("--expert-ffn", type=_count, metavar="N", help="an expert's inner size")
    add(
        "--weight-bits",
        type=_positive,
        metavar="BITS",
        help="bits of a weight with its scales: 16, 8, 4.5 ... (default: as the model comes)",
    )
    add("--kv-dtype", choices=KV_BITS, default="bfloat16", help="of the KV cache (bfloat16)")
    add(
        "--drop-windows",
        action="store_true",
        help="pages behind sliding windows are given up (radixgate keeps them for later requests)",
    )


def _add_device_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the device").add_argument
    add("--gpu", metavar="NAME", help="one of the table (--list)")
    add("--memory-gb", type=_positive, metavar="GB", help="of another GPU, with")
    add("--bandwidth-gbs", type=_positive, metavar="GB/s")
    add("--tflops", type=_positive, metavar="N", help="dense, in 16 bits")
    add("--tflops-8bit", type=_positive, metavar="N", help="dense, in 8 bits")
    add("--link-gbs", type=_positive, metavar="GB/s", help="to other GPUs, one way (default 32)")
    add("--cpu", action="store_true", help="this machine, measured now")
    add("--gpus", type=_count, metavar="N", help="so many there are (default: as few as needed)")
    add("--tensor-parallel", type=_count, metavar="N", help="GPUs of a replica (default: chosen)")
    add("--compute-bits", type=int, choices=(8, 16), help="arithmetic (8 with weights of 8 bits)")


def _add_load_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the load").add_argument
    add("--users", type=_count, metavar="N", help="each sends when it has its answer (default 1)")
    add(
        "--rate", type=_positive, metavar="N", help="requests a second at random, in place of users"
    )
    add("--prompt", type=_count, default=1024, metavar="TOKENS", help="(default 1024)")
    add("--output", type=_count, default=256, metavar="TOKENS", help="(default 256)")
    add(
        "--shared-prefix",
        type=_whole,
        default=0,
        metavar="TOKENS",
        help="of the prompt that all requests share, and the cache has (default 0)",
    )
    add("--chunk", type=_count, metavar="TOKENS", help="prompt tokens a step (2048; --cpu 512)")
    add("--ttft", type=_duration, metavar="TIME", help="target of the mean, such as 500ms")
    add("--tpot", type=_duration, metavar="TIME", help="target of the mean, such as 50ms")
    add("--price-per-hour", type=_positive, metavar="PRICE", help="of one GPU")


def _add_assumptions(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is assumed").add_argument
    usual = Assumptions()

    def share(flag: str, default: float, text: str) -> None:
        add(flag, type=_positive, metavar="SHARE", help=f"{text} (default {default})")

    share("--memory-share", usual.memory, "of the memory, for weights and KV")
    share("--bandwidth-efficiency", usual.bandwidth, "of the bandwidth that is reached")
    share("--flop-efficiency", usual.compute, "of the FLOP/s that are reached")
    add("--step-overhead", type=_duration, metavar="TIME", help="of a step beside the model (1ms)")
    add("--request-overhead", type=_duration, metavar="TIME", help="before a prefill (10ms)")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _positive(text: str) -> float:
    value = _number(text)
    if not _LEAST <= value <= _MOST:
        expected = f"a number above 0, from {_LEAST:g} to {_MOST:g}, was expected"
        raise argparse.ArgumentTypeError(f"{text!r}: {expected}")
    return value


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number was expected")
    return int(text)


def _count(text: str) -> int:
    if _whole(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 was expected")
    return int(text)


def _amount(text: str) -> float:
    found = _AMOUNT.fullmatch(text)
    amount = float(found[1]) * _FACTORS[found[2].lower()] if found else 0.0
    if not 0 < amount <= _MOST * _MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: a number such as 8.03b was expected")
    return amount


def _duration(text: str) -> float:
    """Seconds."""
    seconds = seconds_of(text, needs_unit=True)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a time such as 500ms or 1.5s was expected")
    return seconds
