"""Turns: one thread at a time, errors and interrupts reach the caller."""

import threading

import pytest

from fedclust.experiments.together import in_turns


def test_one_at_a_time_and_in_order():
    said, running = [], []

    def work(name, rounds):
        def run(pass_on):
            for t in range(rounds):
                running.append(name)
                assert running == [name]
                said.append((name, t))
                running.remove(name)
                pass_on()
            return name * 2

        return run

    assert in_turns([work("a", 3), work("b", 1), work("c", 2)]) == ["aa", "bb", "cc"]
    assert said == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("c", 1), ("a", 2)]


def test_a_single_one_needs_no_thread():
    assert in_turns([lambda pass_on: threading.current_thread()]) == [threading.main_thread()]


def test_an_interrupt_stops_the_others_at_their_next_turn():
    rounds = []

    def interrupted(pass_on):
        pass_on()
        raise KeyboardInterrupt

    def long(pass_on):
        for t in range(10**6):
            rounds.append(t)
            pass_on()

    with pytest.raises(KeyboardInterrupt):
        in_turns([interrupted, long])
    assert len(rounds) < 3
