"""What the runtime process decides before it loads anything."""

import os
import signal

from runtime.orphans import is_orphan
from runtime.worker import StopSwitch, main
from runtime.worker_options import EXIT_BAD_ARGUMENT


def test_a_process_knows_its_parent_from_any_other() -> None:
    assert not is_orphan(os.getppid())
    assert is_orphan(os.getpid())
    assert not is_orphan(None)


def test_the_switch_is_thrown_by_a_signal_or_by_the_parents_end() -> None:
    switch = StopSwitch(os.getppid())
    assert not switch.is_thrown()
    switch.on_signal(signal.SIGTERM, None)
    assert switch.is_thrown()
    assert StopSwitch(os.getpid()).is_thrown()


def test_an_option_that_does_not_exist_is_refused() -> None:
    options = '{"address": "ipc:///tmp/x", "config": {"model": "m"}, "adress": ""}'
    assert main([options]) == EXIT_BAD_ARGUMENT
