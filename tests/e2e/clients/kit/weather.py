"""The tools that clients are given, in the shapes of both APIs, and what their arguments may be.

Arguments are of finite sets, so that a model of any quality ends its call.
"""

import json
from typing import Any

CITIES = ("Paris", "Tokyo")
QUESTION = "What will the weather be in Tokyo in two days?"
RESULT = "18 degrees and rain"
WEATHER_CALL = {"name": "get_weather", "arguments": {"city": "Tokyo", "days": 2}}
TIME_CALL = {"name": "get_time", "arguments": {"city": "Paris"}}


def repeat(*calls: dict[str, Any]) -> str:
    """A prompt at which even a small model that may choose makes these calls."""
    shown = [f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls]
    return "Repeat: " + "\n".join(shown)


def weather_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": list(CITIES)},
            "days": {"type": "integer", "enum": [1, 2, 3]},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    }


def time_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": list(CITIES)}},
        "required": ["city"],
        "additionalProperties": False,
    }


WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a city in some days.",
    "parameters": weather_schema(),
    "strict": True,
}
TIME: dict[str, Any] = {
    "name": "get_time",
    "description": "The local time of a city.",
    "parameters": time_schema(),
    "strict": True,
}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": function} for function in (WEATHER, TIME)]
RESPONSES_TOOLS: list[Any] = [{"type": "function", **function} for function in (WEATHER, TIME)]


def check_arguments(name: str, arguments: str | dict[str, Any]) -> None:
    """Raises AssertionError unless they fit the schema of the tool of this name."""
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    keys = {"get_weather": ["city", "days"], "get_time": ["city"]}[name]
    assert list(given) == keys, given
    assert given["city"] in CITIES, given
    assert name == "get_time" or given["days"] in (1, 2, 3), given
