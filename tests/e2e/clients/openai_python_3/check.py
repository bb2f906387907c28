"""openai 3.x, with strict response validation."""

from features import Checks
from openai_chat import add_chat, add_details, add_errors, add_structured
from openai_responses import add_kept_responses, add_responses, add_responses_tools
from openai_tools import add_streamed_tools, add_tools

checks = Checks("openai")
for add in (add_chat, add_details, add_structured, add_tools, add_streamed_tools):
    add(checks)
for add in (add_responses, add_kept_responses, add_responses_tools, add_errors):
    add(checks)

if __name__ == "__main__":
    checks.run()
