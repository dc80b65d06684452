"""What ranks do in the tests of failures: each hands back what it was told."""
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from jobs import wait_for

import tutti


def join(rank, size, folder, **options):
    """Makes the default group. Nobody is still joining when it returns, on any rank: a failure that
    comes soon would end that, too."""
    options.setdefault("timeout", 60)
    group = tutti.init(rank, size, f"file:{folder}/store", **options)
    meet(rank, size, folder, "joined")
    return group


def meet(rank, size, folder, where):
    """Waits until all ranks have come to the same place, by files alone."""
    (Path(folder) / f"{where}.{rank}").touch()
    flags = [Path(folder) / f"{where}.{other}" for other in range(size)]
    wait_for(lambda: all(flag.exists() for flag in flags), f"all ranks have {where}")


def told(call):
    """What a call raised, as JSON."""
    try:
        call()
    except tutti.Error as error:
        return {"type": type(error).__name__, "message": str(error), "code": error.code,
                "rank": error.rank, "peer": error.peer,
                "timeout": isinstance(error, TimeoutError),
                "connection": isinstance(error, ConnectionError)}
    return None


def is_in(frame, function):
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


def is_in_all_reduce(frame):
    return is_in(frame, "all_reduce")


def interrupt_only_in(function):
    """Ctrl-C that comes a little early is passed over; the test presses it again."""
    def handler(_, frame):
        if is_in(frame, function):
            raise KeyboardInterrupt
    signal.signal(signal.SIGINT, handler)


def different_counts(rank, size, folder):
    group = join(rank, size, folder)
    answer = told(lambda: tutti.all_reduce(np.ones(3 if rank == 1 else 2)))
    again = told(tutti.barrier)
    assert group.health is not None and group.health.code == again["code"]
    return answer


def different_calls(rank, size, folder):
    join(rank, size, folder)
    return told(lambda: tutti.broadcast(np.ones(2)) if rank == 1 else tutti.all_reduce(np.ones(2)))


def one_never_comes(rank, size, folder):
    join(rank, size, folder, timeout=0.5)
    if rank == size - 1:
        flags = [Path(folder) / f"done.{other}" for other in range(size - 1)]
        wait_for(lambda: all(flag.exists() for flag in flags), "the others gave up")
        return None
    answer = told(lambda: tutti.all_reduce(np.ones(2)))
    (Path(folder) / f"done.{rank}").touch()
    return answer


def victim():
    return int(os.environ["VICTIM"])


def die(folder):
    """Leaves the time, and nothing else."""
    (Path(folder) / "died").write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def told_in_time(call, folder):
    """What it raised, and how many seconds after the victim's death: one clock serves the whole host."""
    answer = told(call)
    return {**answer, "seconds": time.monotonic() - float((Path(folder) / "died").read_text())}


def one_is_killed(rank, size, folder):
    join(rank, size, folder)
    if rank == victim():
        die(folder)
    return told_in_time(lambda: tutti.all_reduce(np.ones(1000)), folder)


def one_is_killed_before_a_wait(rank, size, folder):
    join(rank, size, folder)
    work = tutti.all_reduce_async(np.ones(1000)) if rank != victim() else None
    meet(rank, size, folder, "begun")
    if rank == victim():
        die(folder)
    return told_in_time(work.wait, folder)


def one_is_killed_with_its_own_part_under_way(rank, size, folder):
    """Too much to be over before the death: 256 MB a rank, moved while the victim goes."""
    join(rank, size, folder)
    work = tutti.all_reduce_async(np.ones(32 << 20))
    if rank == victim():
        assert not work.done()
        die(folder)
    return told_in_time(work.wait, folder)


def survivors_go_on(rank, size, folder):
    group = join(rank, size, folder)
    if rank == victim():
        die(folder)
    answer = told(group.barrier)
    smaller = group.shrink(timeout=20)
    total = smaller.all_reduce(np.array([float(rank)]))
    return {**answer, "rank": smaller.rank, "size": smaller.size, "total": float(total[0]),
            "again": told(group.shrink)["type"]}


def another_takes_its_place(rank, size, folder):
    """All but the last are a group. One of them is killed; then the last comes, and is taken in."""
    store, ranks = f"file:{folder}/store", size - 1
    if rank == ranks:
        wait_for((Path(folder) / "died").exists, "a rank has died")
        whole = tutti.join(store, timeout=60)
        assert tutti.group() is whole
    else:
        group = join(rank, ranks, folder)
        assert group.grow(store, ranks + 1) is None  # nobody waits
        meet(rank, ranks, folder, "asked")
        if rank == victim():
            die(folder)
        assert told(group.barrier)["type"] == "PeerLost"
        smaller, whole = group.shrink(timeout=20), None
        while whole is None:  # between two steps, as a program does
            smaller.barrier()
            whole = smaller.grow(store, ranks)
    return {"rank": whole.rank, "size": whole.size, "total": float(whole.all_reduce(10.0 ** rank)),
            "members": whole.all_gather(np.array([rank])).tolist()}


def nobody_grows(rank, size, folder):
    store = f"file:{folder}/store"
    late = told(lambda: tutti.join(store, join_timeout=0.2))
    assert not tutti.is_initialized()
    group = join(rank, size, folder)
    assert group.grow(store, size + 1) is None  # whoever gave up waits no longer
    mistakes = [lambda: tutti.join(store), lambda: group.grow("nowhere", 2)]
    answers = [late, *map(told, mistakes)]
    group.close()
    return answers + [told(lambda: group.grow(store, 2))]


def one_aborts(rank, size, folder):
    group = join(rank, size, folder)
    if rank == 0:
        group.abort("the data is bad")
    return told(lambda: tutti.all_reduce(np.ones(2)))


def one_is_interrupted(rank, size, folder):
    """Rank 0 waits for the others in a blocking call; the test sends it Ctrl-C."""
    join(rank, size, folder)
    if rank:
        wait_for((Path(folder) / "interrupted").exists, "rank 0 was interrupted")
        return told(tutti.barrier)
    interrupt_only_in("barrier")
    (Path(folder) / "waiting").touch()
    try:
        tutti.barrier()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (Path(folder) / "interrupted").touch()
        return told(tutti.barrier)
    return "not interrupted"


def a_signal_handler_runs_meanwhile(rank, size, folder):
    """A handler that raises nothing leaves the call alone; it may not start another on the group."""
    group = join(rank, size, folder)
    if rank:
        wait_for((Path(folder) / "interrupted").exists, "rank 0's handler ran")
        return float(tutti.all_reduce(1.0))
    inside, seen = [], []

    def handler(_, frame):
        # The first signal may come just before the wait begins; a later one cannot.
        inside.append(is_in_all_reduce(frame))
        if sum(inside) < 2:
            return
        seen.append(told(group.barrier))
        (Path(folder) / "interrupted").touch()

    signal.signal(signal.SIGINT, handler)
    (Path(folder) / "waiting").touch()
    result = float(tutti.all_reduce(1.0))
    assert seen and all(error["type"] == "InvalidArgument" and "handler" in error["message"]
               for error in seen), seen
    return result


def a_wait_is_interrupted(rank, size, folder):
    """The same in Work.wait: there the operation goes on."""
    join(rank, size, folder)
    if rank:
        wait_for((Path(folder) / "interrupted").exists, "rank 0 was interrupted")
        return float(tutti.all_reduce(1.0))
    work = tutti.all_reduce_async(1.0)
    interrupt_only_in("wait")
    (Path(folder) / "waiting").touch()
    try:
        work.wait()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (Path(folder) / "interrupted").touch()
        return float(work.wait())
    return "not interrupted"


def a_wait_gives_up(rank, size, folder):
    join(rank, size, folder)
    if rank:
        wait_for((Path(folder) / "gave_up").exists, "rank 0 gave up waiting")
        return float(tutti.all_reduce(1.0))
    work = tutti.all_reduce_async(1.0)
    error = told(lambda: work.wait(timeout=0.05))
    assert error["type"] == "TimedOut" and "under way" in error["message"], error
    assert not work.done()
    (Path(folder) / "gave_up").touch()
    return float(work.wait())


def another_thread_runs_meanwhile(rank, size, folder):
    """While a call waits, the interpreter's lock is free: rank 0's other thread sees it in there,
    and only then lets rank 1 come."""
    join(rank, size, folder)
    flag = Path(folder) / "come"
    main = threading.get_ident()

    def watch():
        wait_for(lambda: is_in_all_reduce(sys._current_frames()[main]), "rank 0 is in all_reduce")
        flag.touch()

    if rank == 0:
        threading.Thread(target=watch).start()
    else:
        wait_for(flag.exists, "rank 0's other thread ran")
    return float(tutti.all_reduce(1.0))


def threads_take_turns(rank, size, folder):
    """Several threads of a process use one group each, then one group together."""
    group = join(rank, size, folder)
    groups = [group.duplicate() for _ in range(4)]
    results = [None] * 4

    def work(i):
        for _ in range(50):
            results[i] = float(groups[i].all_reduce(float(i)))
        for _ in range(50):  # the same call in all threads: which one goes first does not matter
            if group.all_reduce(np.ones(3)).tolist() != [size] * 3:
                results[i] = "a wrong sum"

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def one_thread_sends_while_another_waits(rank, size, folder):
    """Rank 1 comes to the collective only after a message from rank 0, whose main thread is in it."""
    group = join(rank, size, folder)
    if rank:
        into = np.empty(1)
        tutti.recv(into, 0)
        return float(tutti.all_reduce(into[0]))
    main = threading.get_ident()

    def send():
        wait_for(lambda: is_in_all_reduce(sys._current_frames()[main]), "rank 0 is in all_reduce")
        group.isend(np.array([41.0]), 1).wait()

    threading.Thread(target=send).start()
    return float(tutti.all_reduce(1.0))


def a_child_of_fork(rank, size, folder):
    group = join(rank, size, folder)
    child = os.fork()
    if child == 0:  # leaves through Python's own exit: the parent's group must not notice
        error = told(lambda: group.all_reduce(1.0))
        assert error and error["type"] == "Unsupported", error
        assert not tutti.is_initialized()
        own = tutti.init(0, 1, f"file:{folder}/child{rank}")
        raise SystemExit(0 if own.all_reduce(1.0) == 1.0 else 3)
    _, status = os.waitpid(child, 0)
    return [os.waitstatus_to_exitcode(status), float(tutti.all_reduce(1.0))]


def nobody_says_goodbye(rank, size, folder):
    """Ends with works under way, groups open and arrays alive."""
    group = join(rank, size, folder)
    globals()["kept"] = [group.split(0), tutti.empty(100)]
    meet(rank, size, folder, "shared")  # the first to go would be missed by one that still allocates
    kept.append(tutti.all_reduce_async(np.ones(10)))
    if rank == 0:
        kept.append(tutti.irecv(np.empty(4), 1))
    return True


def leaves_early(rank, size, folder):
    """A rank whose program ends is seen to leave."""
    join(rank, size, folder)
    return None if rank == 0 else told(lambda: tutti.all_reduce(np.ones(2)))


def nobody_else_joins(rank, size, folder):
    return told(lambda: tutti.init(0, 2, f"file:{folder}/store", join_timeout=0.3))
