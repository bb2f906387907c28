"""What a run says of its tokens: by tier, forced ones, and where it ended early."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest

from gateway.chat_template import ChatTemplate
from gateway.errors import GatewayError
from gateway.generation import Completed, GenerationRequest, TextDelta, TextPrompt, Usage
from gateway.token_generator import TokenGenerator
from gateway.tokenizer import Tokenizer
from runtime.messages import (
    AttributeValue,
    EngineFault,
    ErrorCode,
    Phase,
    Sampling,
    Submit,
    TokenEvent,
)
from telemetry import names
from tests.byte_tokenizer import byte_assets
from tests.fake_constraint_probe import FakeConstraintProbe
from tests.fake_token_engine import FakeTokenEngine

PROMPT = "twelve bytes"


class TieredEngine(FakeTokenEngine):
    """Of what is cached, 3 tokens came from a disk and 4 from a Redis; of the answer of each
    choice 2 were forced."""

    async def _run(self, request: Submit) -> AsyncIterator[TokenEvent]:
        self.cached_tokens = 9
        async for event in super()._run(request):
            if event.admitted and event.choice == 0:
                fetches = [fetch("disk", "fetched", 3), fetch("redis", "fetched", 4)]
                tried = [fetch("host", "nothing_there", 5)]
                event = msgspec.structs.replace(event, phases=[*tried, *fetches, *event.phases])
            if event.usage is not None:
                usage = msgspec.structs.replace(
                    event.usage, forced_tokens=2, tier_tokens={"disk": 3, "redis": 4}
                )
                event = msgspec.structs.replace(event, usage=usage)
            yield event


def fetch(tier: str, decision: str, num_tokens: int) -> Phase:
    attributes: dict[str, AttributeValue] = {
        names.ATTR_CACHE_TIER: tier,
        names.ATTR_FETCH_DECISION: decision,
        names.ATTR_FETCH_TOKENS: num_tokens,
    }
    return Phase(names.SPAN_CACHE_FETCH, 1, 2, attributes)


def wanted(*prompts: str, **changes: object) -> GenerationRequest:
    return GenerationRequest(
        request_id="r",
        prompts=tuple(TextPrompt(text=prompt) for prompt in prompts or (PROMPT,)),
        sampling=Sampling(max_tokens=0),
        max_tokens=64,
        **changes,  # type: ignore[arg-type]
    )


async def taken(
    engine: FakeTokenEngine, request: GenerationRequest, *, max_deltas: int | None = None
) -> Usage | None:
    """The usage of the whole run, or of one whose client leaves after so many deltas."""
    assets = byte_assets()
    generator = TokenGenerator(
        engine=engine,
        tokenizer=Tokenizer(assets),
        template=ChatTemplate(assets.chat_template or "", assets.special_tokens),
        probe=FakeConstraintProbe(),
    )
    num_deltas = 0
    async with aclosing(generator.generate(await generator.prepare(request))) as events:
        async for event in events:
            if isinstance(event, Completed):
                assert not request.usage_log
                return event.usage
            num_deltas += isinstance(event, TextDelta)
            if max_deltas is not None and num_deltas >= max_deltas:
                break
    return request.usage_log[0] if request.usage_log else None


async def test_usage_says_what_was_forced_and_which_tier_had_what_was_cached() -> None:
    usage = await taken(TieredEngine(), wanted(num_choices=2))
    assert usage is not None
    assert (usage.cached_tokens, usage.tier_tokens) == (9, {"disk": 3, "redis": 4})
    assert usage.forced_tokens == 4


async def test_tiers_of_two_prompts_add_up() -> None:
    usage = await taken(TieredEngine(), wanted(PROMPT, PROMPT))
    assert usage is not None
    assert (usage.cached_tokens, usage.tier_tokens) == (18, {"disk": 6, "redis": 8})


async def test_a_stop_string_leaves_what_the_tiers_gave_known() -> None:
    usage = await taken(TieredEngine(), wanted(stop=("wor",)))
    assert usage is not None
    assert (usage.cached_tokens, usage.tier_tokens) == (9, {"disk": 3, "redis": 4})


async def test_no_more_came_from_tiers_than_was_cached() -> None:
    usage = await taken(TieredEngine(), wanted("seven b", stop=("wor",)))
    assert usage is not None
    assert (usage.cached_tokens, usage.tier_tokens) == (6, {"disk": 3, "redis": 3})


async def test_client_that_leaves_has_taken_what_had_come() -> None:
    engine = FakeTokenEngine(tokens_per_event=2)
    engine.cached_tokens = 5
    usage = await taken(engine, wanted(), max_deltas=3)
    assert usage == Usage(
        prompt_tokens=len(PROMPT), completion_tokens=6, cached_tokens=5, written_tokens=7
    )


async def test_client_that_leaves_the_queue_has_taken_nothing() -> None:
    engine = FakeTokenEngine()
    engine.fault = EngineFault(ErrorCode.QUEUE_TIMEOUT, "x")
    request = wanted()
    with pytest.raises(GatewayError):
        await taken(engine, request)
    assert request.usage_log == []


async def test_a_failure_has_taken_what_had_come_before_it() -> None:
    engine = FakeTokenEngine()
    engine.fault, engine.fault_after = EngineFault(ErrorCode.INTERNAL, "x"), 4
    request = wanted()
    with pytest.raises(GatewayError):
        await taken(engine, request)
    assert request.usage_log == [Usage(len(PROMPT), 4, 0, written_tokens=len(PROMPT))]


async def test_a_prompt_that_was_not_computed_was_not_written() -> None:
    engine = FakeTokenEngine()
    engine.fault, engine.fault_after = EngineFault(ErrorCode.INTERNAL, "x"), 0
    request = wanted()
    with pytest.raises(GatewayError):
        await taken(engine, request)
    assert request.usage_log == [Usage(len(PROMPT), 0, 0, written_tokens=0)]
