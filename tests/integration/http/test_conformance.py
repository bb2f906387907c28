"""The conformance checks over the scripted engine."""

from tests.conformance.every_route import *  # noqa: F403
from tests.conformance.malformed_bodies import *  # noqa: F403
from tests.conformance.openai_client import *  # noqa: F403
from tests.conformance.openai_responses import *  # noqa: F403
from tests.conformance.raw_streams import *  # noqa: F403
