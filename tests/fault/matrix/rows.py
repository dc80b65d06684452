"""The fault matrix: every row with how it is done, what must come of it, and by when."""
import dataclasses
from typing import Callable, Optional, Tuple

import actions
import afterwards
from outcome import Expect

# Same host: 1 s. A silent peer: dead_after, here 2 s, and 1 s more. The rest: the call's deadline.
SAME_HOST_S = 1.0
DEAD_AFTER_S = 2.0
SILENT_S = DEAD_AFTER_S + 1.0
LIVENESS = {"TUTTI_DEAD_AFTER": "2"}
BOTH = ("shm", "tcp")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    how: str
    expect: Expect
    bound: float                      # seconds from the fault to the last verdict; of calm rows: the whole run
    words: str = ""                   # what fault_rank is told
    each_pair: bool = False           # once for every collective × algorithm
    transports: Tuple[str, ...] = ("shm",)
    settings: Tuple[str, ...] = ()    # what is around the job (stage.py)
    act: Optional[Callable] = None    # what is done from outside (actions.py)
    environment: Tuple = ()
    flags: Tuple = ()
    program: str = "fault_rank"
    ranks: int = 4
    after: Optional[Callable] = None  # looks at what is there afterwards; yields problems
    heavy: bool = True                # uses the cores; others only wait, and run beside them


def lost(rank, code=137, **more):
    return Expect(code="peer_lost", culprit=rank, exit_code=code, silent=(rank,), **more)


def fine(**more):
    return Expect(code="ok", exit_code=0, **more)


def kill_rows():
    moments = (("first", "at the first page of a call's memory"), ("middle", "at the middle page"),
               ("last", "at the last page"))
    for at, when in moments:
        yield Row(f"kill-{at}", f"SIGKILL of rank 1 {when}, every collective × algorithm", lost(1), SAME_HOST_S,
                  words=f"victim=1 at={at}", each_pair=True, transports=BOTH)
    yield Row("kill-between", "SIGKILL of rank 1 between two operations", lost(1), SAME_HOST_S,
              words="victim=1 at=between after=5 seconds=5", transports=BOTH)
    yield Row("kill-rank-0", "SIGKILL of rank 0 in the middle of an all_reduce", lost(0), SAME_HOST_S,
              words="victim=0 at=middle op=all_reduce:ring", transports=BOTH)
    yield Row("kill-before", "SIGKILL of rank 1 before rendezvous", lost(1, stage="init"), SAME_HOST_S,
              words="victim=1 at=before", transports=BOTH)
    yield Row("kill-handshake", "SIGKILL of rank 1 when it has made its third socket of joining",
              lost(1), SAME_HOST_S, words="victim=1 at=joining sockets=3", transports=BOTH)
    yield Row("kill-destroy", "SIGKILL of rank 1 while the group is destroyed",
              Expect(code="ok", also=("peer_lost",), exit_code=137, first_failure=1, silent=(1,)), SAME_HOST_S,
              words="victim=1 at=destroy seconds=0.1", transports=BOTH)
    yield Row("kill-finalize", "SIGKILL of rank 1 in an exit handler, its group still there; others destroy theirs",
              Expect(code="ok", also=("peer_lost",), exit_code=137, first_failure=1), SAME_HOST_S,
              words="victim=1 at=finalize seconds=0.1", transports=BOTH)
    yield Row("kill-two", "SIGKILL of ranks 1 and 2 in the same call",
              Expect(code="peer_lost", exit_code=137, silent=(1, 2)), SAME_HOST_S,
              words="victim=1,2 at=middle op=all_reduce:direct", transports=BOTH)
    yield Row("kill-launcher", "SIGKILL of the launcher, which has the store",
              Expect(exit_code=None, anyone_silent=True), SAME_HOST_S, words="seconds=30",
              act=actions.kill_launcher, transports=BOTH)
    yield Row("segv", "SIGSEGV of rank 1 in the user's code", lost(1, 139), SAME_HOST_S,
              words="victim=1 how=segv after=5 seconds=5", transports=BOTH)
    yield Row("leave", "rank 1 exits with 0 and has not destroyed its group",
              lost(1, 3, first_failure=-1, says=("ended without destroying its group",)), SAME_HOST_S,
              words="victim=1 how=leave after=5 seconds=5")


def liveness_rows():
    live = tuple(LIVENESS.items())
    yield Row("stop-short", "SIGSTOP of rank 1 for half of dead_after", fine(), 8,
              words="seconds=4 count=262144", act=actions.stop(DEAD_AFTER_S / 2), transports=BOTH, environment=live,
              heavy=False)
    yield Row("stop-long", "SIGSTOP of rank 1 for ever", Expect(code="peer_lost", culprit=1, exit_code=None, silent=(1,)),
              SILENT_S, words="seconds=30", act=actions.stop(None), transports=BOTH, environment=live,
              flags=("--grace", "0.5"), heavy=False)
    yield Row("slow-rank", "rank 1 gets 2 % of a core by a cpu cgroup", fine(says=("rank 1",)), 45,
              words="seconds=8 op=all_reduce:ring count=20971520", settings=("cpu=0.02",), act=actions.slow_down, transports=BOTH,
              environment=live, heavy=False)
    yield Row("stuck-compute", "rank 1 computes for 6 s, calls may take 2 s",
              Expect(code="timed_out", culprit=1, exit_code=3, first_failure=-1, late=(1,)), 4.0,
              words="victim=1 how=compute compute=6 after=5 timeout=2 seconds=30", transports=BOTH, heavy=False)
    yield Row("compute-alive", "rank 1 computes for 4 s, twice dead_after", fine(), 10,
              words="victim=1 how=compute compute=4 after=5 seconds=4", transports=BOTH, environment=live, heavy=False)


def network_rows():
    live = tuple(LIVENESS.items())
    common = dict(settings=("hosts",), transports=("auto",), environment=live, heavy=False)
    # Each side names one of those it hears no more; launchers, who judge each other's silence too, one node.
    parted = Expect(code="peer_lost", parted=True, exit_code=1, first_failure=-1, says=("cut off",), launchers_s=2)
    long = dict(words="seconds=30 count=65536", **common)
    yield Row("partition", "frames of both hosts are lost", parted, SILENT_S, act=actions.cut((0, 1)), **long)
    yield Row("partition-one-way", "frames of host 1 are lost", parted, SILENT_S, act=actions.cut((1,)), **long)
    yield Row("partition-heals", "frames are lost for 1.2 s, of a dead_after of 2", fine(), 20,
              words="seconds=6 count=65536", act=actions.cut((0, 1), 0.6 * DEAD_AFTER_S), **common)
    yield Row("partition-at-end", "frames of host 1 are lost for 1.2 s, in which the job's last call ends", fine(), 5,
              words="seconds=0 pause=0.05 count=65536", act=actions.cut((1,), 1.2),
              **{**common, "environment": (("TUTTI_DEAD_AFTER", "3"),)})
    yield Row("link-down", "host 1's interface goes down", parted, SILENT_S, act=actions.link_down, **long)
    yield Row("blackhole", "host 1 routes host 0 into a black hole", parted, SILENT_S, act=actions.blackhole, **long)
    yield Row("wrong-neighbour", "host 1 has a wrong neighbour entry for host 0", parted, SILENT_S,
              act=actions.wrong_neighbour, **long)
    yield Row("half-open", "the wire is cut, then host 1's ranks die", dataclasses.replace(parted, silent=(2, 3)),
              SILENT_S, act=actions.half_open, **long)
    yield Row("reset", "RST for both ends in mid stream", Expect(code="peer_lost", exit_code=3), SAME_HOST_S,
              words="seconds=30 count=65536", act=actions.reset, **common)
    yield Row("delay", "every frame takes 20 ms", fine(), 60, words="seconds=0 count=16384 op=all_reduce:ring",
              **{**common, "settings": ("hosts", "delay=0.02")})
    yield Row("throttle", "4 MB/s", fine(), 60, words="seconds=0 count=16384",
              **{**common, "settings": ("hosts", "rate=4e6")})
    yield Row("bit-flip", "a bit of a data frame flipped, TCP's checksum made right",
              Expect(code="corrupt", also=("peer_lost", "io"), exit_code=3), SAME_HOST_S,
              words="seconds=30 count=65536", act=actions.flip, **common)
    yield Row("tls-bit-flip", "the same with TUTTI_TLS=1", Expect(code="corrupt", also=("peer_lost", "io"), exit_code=3),
              SAME_HOST_S, words="seconds=30 count=65536", act=actions.flip,
              **{**common, "environment": (*live, ("TUTTI_TLS", "1"))})
    yield Row("tiny-buffers", "socket buffers of 4 KiB", fine(), 60, words="seconds=0 count=16384",
              **{**common, "settings": ("hosts", "tiny_buffers")})
    yield Row("version", "host 1 says another protocol version", Expect(exit_code=None, anyone_silent=True, says=("version",)),
              10, words="seconds=0", flags=("--join-timeout", "5"), **{**common, "settings": ("hosts", "other_version")})


def resource_rows():
    refused = Expect(exit_code=None, anyone_silent=True)
    yield Row("port-in-use", "the rendezvous' port is somebody else's", dataclasses.replace(refused, says=("in use",)),
              SAME_HOST_S, words="seconds=0", settings=("port_in_use",))
    yield Row("descriptors", "8 ranks where a process may have 24 descriptors",
              dataclasses.replace(refused, says=("open files",)), SAME_HOST_S, words="seconds=0", ranks=8,
              settings=("descriptors=24",), transports=BOTH)
    yield Row("descriptors-of-rank", "rank 1 may have 11 descriptors when it joins",
              Expect(code="out_of_memory", also=("peer_lost",), culprit=1, exit_code=3, first_failure=-1, stage="init",
                     says=("descriptors", )), 5, words="victim=1 descriptors=11 how=none seconds=0", transports=BOTH)
    yield Row("memory-small", "a memory cgroup of 16 MiB: too small for the windows",
              dataclasses.replace(refused, says=("MiB of memory",)), 5, words="seconds=0 count=4194304",
              settings=("memory=16777216",))
    yield Row("memory-kill", "rank 1 outgrows a memory cgroup of 256 MiB", lost(1, says=("memory",)), 10,
              words="victim=1 how=memory after=5 seconds=30", settings=("memory=268435456",))
    yield Row("shm-full", "/dev/shm is full", fine(), 10, words="seconds=0", settings=("full_shm",))
    yield Row("fork", "every rank has a child of its own; rank 1 dies", lost(1), SAME_HOST_S,
              words="fork=1 victim=1 after=5 seconds=5", transports=BOTH)
    yield Row("fork-session", "rank 1 leaves a child in a session of its own and dies", lost(1), SAME_HOST_S,
              words="victim=1 how=fork after=5 seconds=5", transports=BOTH)
    yield Row("clock", "the time of day steps an hour forth and two back", fine(), 10, words="seconds=1.5",
              settings=("clock",), transports=BOTH)


def file_rows():
    cut_short = Expect(code="ok", exit_code=1, first_failure=-1, says=("No space left on device",))
    yield Row("trace-disk-full", "the trace's disk has 5 MiB", fine(says=("No space left on device",)), 20,
              words="seconds=2 op=barrier:direct", settings=("disk=5M",), environment=(("TUTTI_TRACE_DIR", "{place}/disk"),))
    yield Row("log-disk-full", "the debug log's disk has 64 KiB", fine(), 20, words="seconds=0.5", settings=("disk=64K",),
              environment=(("TUTTI_DEBUG", "TRACE"), ("TUTTI_DEBUG_FILE", "{place}/disk/log.%p")))
    yield Row("rank-log-disk-full", "--log-dir on a disk of 8 KiB", cut_short, 20, words="seconds=0.5",
              settings=("disk=8K",), flags=("--log-dir", "{place}/disk/logs"))
    yield Row("trace-crash", "SIGKILL of rank 1 while it traces", lost(1), SAME_HOST_S,
              words="victim=1 at=middle op=all_reduce:ring", environment=(("TUTTI_TRACE_DIR", "{place}/trace"),),
              after=afterwards.trace_is_readable, transports=BOTH)
    yield Row("save-disk-full", "the checkpoints' disk has 96 KiB, room for one",
              Expect(code="io", exit_code=3, first_failure=-1, says=("No space left on device",)), 10,
              program="train_rank", words="folder={place}/disk/saved steps=40", settings=("disk=96K",),
              after=afterwards.goes_on)
    yield Row("save-crash", "SIGKILL of rank 0 some time into saving a checkpoint", lost(0), SAME_HOST_S,
              program="train_rank", words="folder={place}/saved steps=40 victim=0 at=saving after=20",
              after=afterwards.goes_on, transports=BOTH)
    yield Row("save-crash-all", "SIGKILL of all ranks some time into saving a checkpoint",
              Expect(exit_code=137, anyone_silent=True), SAME_HOST_S,
              program="train_rank", words="folder={place}/saved steps=40 victim=0,1,2,3 at=saving after=20",
              after=afterwards.goes_on)


def recovery_rows():
    yield Row("shrink", "SIGKILL of rank 1; the others go on with a smaller group", fine(silent=(1,), says=("ended with 3 of 4 ranks",)), 5,
              words="victim=1 at=middle op=all_reduce:ring recover=shrink seconds=0.3", transports=BOTH)
    yield Row("shrink-twice", "the same, and SIGKILL of rank 2 while it is made", fine(silent=(1, 2), says=("ended with 2 of 4 ranks",)), 5,
              words="victim=1 at=middle op=all_reduce:ring recover=shrink then=2 seconds=0.3", transports=BOTH)
    again = dict(program="train_rank", after=afterwards.same_weights, flags=("--max-restarts", "2"))
    yield Row("restart", "SIGKILL of rank 1 in a step; --max-restarts 2", fine(), 5,
              words="folder={place}/saved steps=40 0:victim=1 at=step after=22", transports=BOTH, **again)
    yield Row("restart-twice", "SIGKILL of rank 1, then of rank 2 in the restarted job", fine(), 10,
              words="folder={place}/saved steps=40 0:victim=1 0:at=step 0:after=22 1:victim=2 1:at=saving 1:after=30",
              transports=BOTH, **again)


ROWS = tuple(row for rows in (kill_rows, liveness_rows, network_rows, resource_rows, file_rows,
                                recovery_rows) for row in rows())
