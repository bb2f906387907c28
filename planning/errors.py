"""The one error of the planner."""


class PlanError(Exception):
    """What was asked for cannot be planned; the message is one line that says what to change."""
