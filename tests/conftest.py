"""What all tests share."""

import os

from runtime.worker_process import OWN_CHOICES, SPIN_ROUNDS, SPIN_VARIABLE
from tests.valkey_server import valkey

__all__ = ["valkey"]

# Read by OpenMP when torch is first imported: tests that compute beside a server must not spin.
if OWN_CHOICES.isdisjoint(os.environ):
    os.environ[SPIN_VARIABLE] = SPIN_ROUNDS
