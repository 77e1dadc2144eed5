"""Ctrl-C while TensorRT builds ends the build, not only a call of the logger."""

from __future__ import annotations

import signal
import threading

import pytest
from isomorph.targets.tensorrt.interrupts import interrupts_kept


@pytest.fixture(autouse=True)
def handled():
    """A process that was started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_raised_when_the_work_is_done():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        signal.raise_signal(signal.SIGINT)
        done.append("worked on")
    assert done == ["worked on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_goes_where_it_always_did():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("not reached")
    assert done == []


def test_without_one_nothing_is_changed():
    with interrupts_kept():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_work_too():
    ended = []

    def work():
        with interrupts_kept():
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended == [True]
