"""The capacity planner: formulas and tables, without a model and without a server."""

from planning.errors import PlanError
from planning.plan import Plan, Question, make_plan

__all__ = ["Plan", "PlanError", "Question", "make_plan"]
