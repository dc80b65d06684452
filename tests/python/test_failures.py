"""Failures arrive as typed exceptions on every rank, and nothing hangs."""
import signal

import fault_bodies as bodies
import jobs
import pytest


@pytest.mark.parametrize("n", [2, 3])
def test_different_counts_are_a_mismatch_on_every_rank(n):
    for answer in jobs.run_ranks(n, bodies.different_counts):
        assert answer["type"] == "Mismatch" and answer["code"] == "mismatch"
        assert "rank 1" in answer["message"] and "all_reduce" in answer["message"]


def test_different_calls_are_a_mismatch_that_names_both():
    for answer in jobs.run_ranks(3, bodies.different_calls):
        assert answer["type"] == "Mismatch"
        assert "broadcast" in answer["message"] and "all_reduce" in answer["message"]


def test_a_rank_that_never_comes_is_named_by_a_timeout():
    *answers, _ = jobs.run_ranks(3, bodies.one_never_comes)
    for answer in answers:
        assert answer["type"] == "TimedOut" and answer["timeout"], answer
        assert "rank 2" in answer["message"]


@pytest.mark.parametrize("body", [bodies.one_is_killed, bodies.one_is_killed_before_a_wait,
                                  bodies.one_is_killed_with_its_own_part_under_way])
@pytest.mark.parametrize("victim", [0, 2, 3])
def test_a_killed_rank_is_told_to_every_survivor_within_two_seconds(body, victim):
    answers = jobs.run_ranks(4, body, VICTIM=str(victim))
    assert answers.pop(victim) is None
    for answer in answers:
        assert answer["type"] == "PeerLost" and answer["connection"] and answer["peer"] == victim, answer
        assert answer["seconds"] < 2, answer


@pytest.mark.parametrize("victim", [0, 2])
def test_survivors_shrink_the_group_and_go_on(victim):
    answers = jobs.run_ranks(3, bodies.survivors_go_on, VICTIM=str(victim))
    assert answers.pop(victim) is None
    for rank, answer in enumerate(answers):
        assert answer["type"] == "PeerLost" and answer["again"] == "InvalidArgument", answer
        assert (answer["rank"], answer["size"], answer["total"]) == (rank, 2, 3 - victim), answer


@pytest.mark.parametrize("victim", [0, 1])
def test_another_rank_takes_the_place_of_one_that_was_killed(victim):
    answers = jobs.run_ranks(4, bodies.another_takes_its_place, VICTIM=str(victim))
    assert answers.pop(victim) is None
    members = [rank for rank in range(4) if rank != victim]
    assert answers == [{"rank": place, "size": 3, "members": members,
                        "total": sum(10.0 ** rank for rank in members)} for place in range(3)]


def test_a_join_that_no_group_answers_and_mistakes_are_typed():
    (late, *mistakes), = jobs.run_ranks(1, bodies.nobody_grows)
    assert late["type"] == "TimedOut" and "has not grown within 0.2 s" in late["message"], late
    assert [mistake["type"] for mistake in mistakes] == ["InvalidArgument"] * 3, mistakes


def test_an_abort_ends_the_group_everywhere_with_its_reason():
    for answer in jobs.run_ranks(3, bodies.one_aborts):
        assert answer["type"] == "Aborted" and "the data is bad" in answer["message"]


def interrupted(body):
    with jobs.Ranks(2, body) as ranks:
        jobs.wait_for(ranks.flag("waiting").exists, "rank 0 waits")
        # The flag comes just before the call: Ctrl-C is pressed until it has been noticed.
        while not ranks.flag("interrupted").exists() and ranks.processes[0].poll() is None:
            ranks.processes[0].send_signal(signal.SIGINT)
            try:
                ranks.processes[0].wait(0.3)
            except jobs.subprocess.TimeoutExpired:
                pass
        return ranks.answers()


def test_ctrl_c_in_a_blocking_call_aborts_the_group():
    for answer in interrupted(bodies.one_is_interrupted):
        assert answer["type"] == "Aborted" and "rank 0 was interrupted" in answer["message"], answer


def test_ctrl_c_in_a_wait_leaves_the_operation_under_way():
    assert interrupted(bodies.a_wait_is_interrupted) == [2.0, 2.0]


def test_a_signal_handler_that_raises_nothing_leaves_the_call_alone():
    assert interrupted(bodies.a_signal_handler_runs_meanwhile) == [2.0, 2.0]


@pytest.mark.parametrize("body, n, expected", [
    (bodies.a_wait_gives_up, 2, [2.0, 2.0]),
    (bodies.another_thread_runs_meanwhile, 2, [2.0, 2.0]),
    (bodies.threads_take_turns, 2, [[0.0, 2.0, 4.0, 6.0]] * 2),
    (bodies.one_thread_sends_while_another_waits, 2, [42.0, 42.0]),
    (bodies.a_child_of_fork, 2, [[0, 2.0]] * 2),
    (bodies.nobody_says_goodbye, 3, [True] * 3),
], ids=lambda value: getattr(value, "__name__", None))
def test_what_must_go_well(body, n, expected):
    assert jobs.run_ranks(n, body) == expected


def test_a_rank_that_leaves_is_noticed():
    answers = jobs.run_ranks(2, bodies.leaves_early)
    assert answers[1]["type"] == "PeerLost" and answers[1]["peer"] == 0


def test_ranks_that_do_not_join_are_named():
    answer, = jobs.run_ranks(1, bodies.nobody_else_joins)
    assert answer["type"] == "TimedOut" and "rank 1" in answer["message"], answer
