"""What goes wrong ends in an exception, in bounded time, that says who did what."""
import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import worlds
from bodies import BACKEND, every_rank, tutti_only

PROMISE_S = 2.0 if BACKEND == "tutti" else 20.0  # after a death, a difference or a deadline on one host
TIMEOUT_S = 2.0  # what the tests ask for


def caught(call):
    """(when it raised by the host's clock, seconds until then, whether it is a RuntimeError, message)."""
    begin = time.monotonic()
    try:
        call()
    except Exception as error:
        return time.monotonic(), time.monotonic() - begin, isinstance(error, RuntimeError), str(error)
    raise AssertionError("nothing was raised")


def check(answer, *words, within_s=PROMISE_S):
    _, took, is_runtime_error, message = answer
    assert took < within_s, answer
    assert is_runtime_error, answer
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def check_timed_out(answer, *words):
    check(answer, *words, within_s=TIMEOUT_S + PROMISE_S)
    assert answer[1] > 0.9 * TIMEOUT_S, answer


def reduce_alone(me, absent, asynchronous=False):
    if me.rank == absent:
        return None
    if asynchronous:
        return caught(lambda: dist.all_reduce(torch.ones(4), async_op=True).wait())
    return caught(lambda: dist.all_reduce(torch.ones(4)))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_rank_that_does_not_come_ends_in_a_timeout(lone_world, asynchronous):
    answers = lone_world(3, timeout_s=TIMEOUT_S).run(
        reduce_alone, {"absent": 1, "asynchronous": asynchronous})
    for rank in (0, 2):
        check_timed_out(answers[rank])


@tutti_only
def test_the_timeout_says_who_is_missing_and_in_what(lone_world):
    answers = lone_world(3, timeout_s=TIMEOUT_S).run(reduce_alone, {"absent": 1})
    for rank in (0, 2):
        check_timed_out(answers[rank], "rank 1", "all_reduce #1 on group 'world'", "it has not started any")


def differ_in_the_third(me):
    dist.barrier()
    dist.all_reduce(torch.ones(2))
    parts = [torch.ones(2)] * me.size
    return caught(lambda: dist.scatter(torch.ones(2), parts, src=0) if me.rank == 0 else dist.barrier())


@tutti_only
def test_operations_are_counted_as_the_program_calls_them_and_by_their_names(lone_world, capfd):
    for answer in lone_world(2).run(differ_in_the_third):
        check(answer, "#3 on group 'world'", "called scatter(", "called barrier()")
        assert answer[-1].startswith("ranks called"), answer  # the type says that it is a mismatch
    assert "ranks called" not in capfd.readouterr().err  # once is enough


def wait_briefly(me):
    if me.rank == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        return caught(lambda: work.wait(timeout=timedelta(milliseconds=300)))
    return None


def test_a_wait_with_a_short_timeout_raises_soon(lone_world):
    answers = lone_world(2).run(wait_briefly)
    check(answers[0])


def receive_alone(me):
    if me.rank == 0:
        return caught(lambda: dist.recv(torch.zeros(4), src=1))
    return None


def test_a_receive_that_nobody_answers_ends(lone_world):
    check_timed_out(lone_world(2, timeout_s=TIMEOUT_S).run(receive_alone)[0])


def join_alone(me):
    if me.rank == 1:
        return None
    return caught(lambda: dist.init_process_group(
        me.backend, init_method=f"file://{me.folder}/store", rank=me.rank, world_size=me.size,
        timeout=timedelta(seconds=TIMEOUT_S)))


def test_joining_ends_when_somebody_does_not_come(lone_ranks):
    answers = lone_ranks(3).run(join_alone)
    for rank in (0, 2):
        check_timed_out(answers[rank])


@tutti_only
def test_joining_names_who_did_not_come(lone_ranks):
    answers = lone_ranks(3).run(join_alone)
    for rank in (0, 2):
        check_timed_out(answers[rank], "rank 1")


def different_calls(me, how):
    calls = {
        "operation": [lambda: dist.all_reduce(torch.ones(4)), lambda: dist.broadcast(torch.ones(4), 0)],
        "count": [lambda: dist.all_reduce(torch.ones(4)), lambda: dist.all_reduce(torch.ones(5))],
        "dtype": [lambda: dist.all_reduce(torch.ones(4)),
                  lambda: dist.all_reduce(torch.ones(4, dtype=torch.float64))],
        "root": [lambda: dist.broadcast(torch.ones(4), 0), lambda: dist.broadcast(torch.ones(4), 1)],
        "reduction": [lambda: dist.all_reduce(torch.ones(4)),
                      lambda: dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX)],
    }[how]
    return caught(calls[1 if me.rank == me.size - 1 else 0])


@tutti_only
@pytest.mark.parametrize("how, words", [
    ("operation", ["all_reduce", "broadcast"]), ("count", ["4 x f32", "5 x f32"]), ("dtype", ["4 x f32", "4 x f64"]),
    ("root", ["root 0", "root 1"]), ("reduction", ["sum", "max"])])
def test_different_calls_fail_on_every_rank_naming_the_one_that_differs(lone_world, how, words):
    for answer in lone_world(3).run(different_calls, {"how": how}):
        check(answer, "rank 2", *words)


def wait_for_the_doomed(me, call, victim):
    """The victim never calls; it is killed meanwhile."""
    calls = {"all_reduce": lambda: dist.all_reduce(torch.ones(4)),
             "async": lambda: dist.all_reduce(torch.ones(4), async_op=True).wait(),
             "future": lambda: dist.all_reduce(torch.ones(4), async_op=True).get_future().wait(),
             "large": lambda: dist.all_reduce(torch.ones(1 << 20)),
             "recv": lambda: dist.recv(torch.ones(4), src=victim),
             "barrier": dist.barrier}
    open(f"{me.folder}/waiting_{me.rank}", "w").close()
    return caught(calls[call])


def kill_while_others_wait(world, call, victim):
    """Answers of the others once the victim is gone, which come in time."""
    others = [rank for rank in range(3) if rank != victim]
    world.start(wait_for_the_doomed, {"call": call, "victim": victim}, only=others)
    deadline = time.monotonic() + 30
    while not all(os.path.exists(f"{world.folder}/waiting_{rank}") for rank in others):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed_at = time.monotonic()
    world.kill(victim)
    answers = world.collect(only=others)
    assert all(kind == "result" for kind, _ in answers.values()), answers
    for raised_at, *_ in (answer for _, answer in answers.values()):
        assert killed_at < raised_at < killed_at + PROMISE_S, answers
    return [answers[rank][1] for rank in others]


@pytest.mark.parametrize("call, victim", [("all_reduce", 1), ("async", 2), ("recv", 0), ("barrier", 1)])
def test_survivors_of_a_killed_rank_raise(lone_world, call, victim):
    for answer in kill_while_others_wait(lone_world(3), call, victim):
        assert answer[2], answer


@tutti_only
@pytest.mark.parametrize("call, victim", [("all_reduce", 0), ("future", 1), ("large", 2), ("barrier", 0)])
def test_survivors_name_the_killed_rank(lone_world, call, victim):
    for *_, message in kill_while_others_wait(lone_world(3), call, victim):
        assert f"rank {victim}" in message, message


def after_failure(me):
    first = caught(lambda: dist.all_reduce(torch.ones(4)))
    return first, caught(lambda: dist.all_reduce(torch.ones(4)))


@tutti_only
def test_later_calls_of_a_failed_group_fail_at_once_with_the_same_cause(lone_world):
    world = lone_world(3)
    world.kill(1)
    world.start(after_failure, only=[0, 2])
    answers = world.collect(only=[0, 2])
    for rank in (0, 2):
        kind, answer = answers[rank]
        assert kind == "result", answer
        first, second = answer
        check(first, "rank 1")
        check(second, "rank 1", within_s=0.5)


def types_of_errors(me):
    import tutti_torch
    error = None
    try:
        dist.all_reduce(torch.ones(4 + me.rank))
    except Exception as caught_error:
        error = caught_error
    return isinstance(error, tutti_torch.Error), isinstance(error, RuntimeError)


@tutti_only
def test_errors_are_of_the_documented_type(lone_world):
    assert lone_world(2).run(types_of_errors) == [(True, True)] * 2


def exit_with_work_pending(me):
    """Returns with an operation under way that nobody will ever finish."""
    me.works = [dist.all_reduce(torch.ones(4), async_op=True),
                dist.irecv(torch.ones(4), src=me.previous)] if me.rank == 0 else []


def leave(me):
    import os
    import sys
    import threading
    # As the interpreter's end does: destructors run, then the process is gone.
    threading.Timer(30, lambda: os._exit(3)).start()
    me.works = None
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


@tutti_only
def test_leaving_with_operations_under_way_does_not_hang(lone_world):
    world = lone_world(2)
    world.run(exit_with_work_pending)
    world.start(leave)
    answers = world.collect()
    assert {rank: kind for rank, (kind, _) in answers.items()} == {0: "died", 1: "died"}
    assert [process.exitcode for process in world.processes] == [0, 0]


@every_rank(2)
def test_bad_arguments_are_refused_on_the_spot(me):
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        dist.broadcast(torch.ones(2), src=17)
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        dist.all_gather([torch.ones(2)] * (me.size + 1), torch.ones(2))
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        dist.scatter(torch.ones(2), [torch.ones(2)] * (me.size + 2) if me.rank == 0 else [torch.ones(2)],
                     src=0)
    dist.barrier()


def go_on(me):
    import tutti_torch
    try:
        dist.all_reduce(torch.ones(4))
    except tutti_torch.PeerLost as lost:
        peer = lost.peer
    tutti_torch.shrink(timeout=20)
    x = torch.tensor([float(me.rank)])
    dist.all_reduce(x)
    pair = dist.new_group([0, 1])
    dist.all_reduce(x, group=pair)
    return peer, dist.get_rank(), dist.get_world_size(), x.item()


def answers_of(world, body, only, **arguments):
    world.start(body, arguments, only=only)
    answers = world.collect(only=only)
    assert all(kind == "result" for kind, _ in answers.values()), answers
    return [answers[rank][1] for rank in only]


def take_in(me):
    """Shrunk or not: grows as soon as somebody waits."""
    import tutti_torch
    while dist.get_rank() == 0 and tutti_torch.waiting(me.store) == 0:
        time.sleep(0.01)
    dist.barrier()
    assert tutti_torch.grow(me.store, most=3) is dist.group.WORLD
    assert tutti_torch.grow(me.store, most=3) is None
    return state_of_world(me)


def state_of_world(me):
    import tutti_torch
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    timeout = tutti_torch._C.timeout(tutti_torch._backend(None)).total_seconds()
    return dist.get_rank(), dist.get_world_size(), x.item(), timeout, dist.get_backend()


def come_back(me, port):
    import tutti_torch
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    tutti_torch.join(store, timeout=17)
    assert tutti_torch.grow(store, most=3) is None
    with pytest.raises(tutti_torch.InvalidArgument):
        tutti_torch.join(store)
    return state_of_world(me)


@tutti_only
def test_survivors_shrink_the_default_group_and_go_on_and_take_back_who_returns(lone_world):
    world = lone_world(3, timeout_s=17.0)
    port = answers_of(world, port_of_store, [0])[0]
    world.kill(1)
    assert answers_of(world, go_on, [0, 2]) == [(1, 0, 2, 4.0), (1, 1, 2, 4.0)]
    assert answers_of(world, state_of_world, [0, 2]) == [(rank, 2, 1.0, 17.0, "tutti") for rank in range(2)]
    with worlds.Ranks(1, "tutti") as newcomer:
        newcomer.start(come_back, {"port": port})
        assert answers_of(world, take_in, [0, 2]) == [(rank, 3, 3.0, 17.0, "tutti") for rank in range(2)]
        assert newcomer.collect() == {0: ("result", (2, 3, 3.0, 17.0, "tutti"))}
        newcomer.kill(0)
        assert answers_of(world, go_on, [0, 2]) == [(2, 0, 2, 4.0), (2, 1, 2, 4.0)]


def port_of_store(me):
    return me.store.port


def keep_what_there_is(me):
    import tutti_torch
    with pytest.raises(tutti_torch.PeerLost):
        dist.all_reduce(torch.ones(4))
    before = dist.group.WORLD
    with pytest.raises(tutti_torch.IoError, match="torch's store is gone"):
        tutti_torch.shrink(timeout=20)
    assert dist.group.WORLD is before and dist.get_world_size() == 3


@tutti_only
def test_shrinking_without_a_store_leaves_the_group_that_is(lone_world):
    world = lone_world(3)
    world.kill(0)  # its store goes with it
    answers_of(world, keep_what_there_is, [1, 2])
