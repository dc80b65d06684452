#!/usr/bin/env python3
"""Whoever connects and knows no secret changes nothing: neither results nor, noticeably, speed or memory.

    tests/fault/strangers.py                    full size: 10,000 connections, three runs of each kind
    tests/fault/strangers.py --kind http        only this kind
    tests/fault/strangers.py --quick            small and short, with a generous bound: for CI

Each kind of stranger comes twice: while ranks join (one of them comes --late seconds after the others, which listen for
that long), and while they work. Printed: how much slower joining and working were than in runs in between, and the
most memory and descriptors that a process of the job had. In the runs in between the same strangers are there and
visit somebody else, on the same cores: what is compared is what the job does about them.
"""
import argparse
import os
import random
import selectors
import signal
import socket
import statistics
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "matrix"))
from job import Job, PROGRAMS, processes_with  # noqa: E402

RANKS = 2
TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(32) + bytes.fromhex("20") + bytes(32) + \
    bytes.fromhex("0004130113020100005400") + bytes(80)


def hello(version):
    """The opening of tutti's own handshake, as somebody sends it who knows all but the secret."""
    return struct.pack("<4sI32siiQ", b"TUTI", version, random.randbytes(32), 2, 1, 0)


def huge_header():
    """Every version's opening is right; then comes a length of 2^63."""
    return hello(random.randint(1, 4)) + struct.pack("<Q", 1 << 63) * 8


# What is sent, and whether the stranger then goes (else: it stays until it is thrown out).
KINDS = {
    "close": (lambda: b"", True),
    "silent": (lambda: b"", False),
    "http": (lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", False),
    "tls": (lambda: TLS_HELLO, False),
    "random": (lambda: random.randbytes(4096), False),
    "header": (huge_header, False),
    "sweep": (lambda: b"", True),   # every port of the host, not only ours
    "flood": (lambda: b"", False),  # as many as there may be at once
}


def listening_ports(mark):
    """TCP ports on which processes of the job listen."""
    inodes = {}
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if fields[3] == "0A":
                inodes[fields[9]] = int(fields[1].split(":")[1], 16)
    ports = set()
    for pid in processes_with(mark):
        for descriptor in list_descriptors(pid):
            if descriptor.startswith("socket:["):
                ports.add(inodes.get(descriptor[8:-1]))
    return ports - {None}


def list_descriptors(pid):
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    except OSError:  # it ended
        pass
    return found


def resident_kib(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmRSS")), 0)
    except OSError:
        return 0


class Host:
    """Somebody else whom strangers visit: takes them in, as many as a job would."""

    PLACES = 256

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.guests = []

    def let_in(self):
        while True:
            try:
                self.guests.append(self.listener.accept()[0])
            except BlockingIOError:
                return
            if len(self.guests) > self.PLACES:
                self.guests.pop(0).close()


class Crowd:
    """Strangers of one kind, in a process of their own, at whatever ports the job opens, or as often elsewhere."""

    def __init__(self, kind, mark, most, elsewhere=False):
        self.kind, self.mark, self.most, self.elsewhere = kind, mark, most, elsewhere
        self.count_read, count_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.count_read)
            self.live(count_write)
            os._exit(0)
        os.close(count_write)

    def live(self, count_write):
        os.nice(10)
        done = []
        signal.signal(signal.SIGTERM, lambda *_: done.append(True))
        self.selector, self.open, self.total = selectors.DefaultSelector(), [], 0
        ports, looked = [], 0.0
        host = Host() if self.elsewhere else None
        while not done and os.getppid() != 1:
            if time.monotonic() > looked + 0.05:
                ports, looked = list(listening_ports(self.mark)), time.monotonic()
                ports = [host.port] * len(ports) if host else ports
            for port in self.targets(ports):
                self.visit(port)
            self.look()
            if host:
                host.let_in()
            time.sleep(0.001)
        os.write(count_write, str(self.total).encode())

    def targets(self, ports):
        if self.kind == "sweep":
            return random.sample(range(1024, 65536), 20) + ports
        return ports * (20 if self.kind == "flood" else 1)

    def visit(self, port):
        if len(self.open) >= self.most:
            return
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        self.total += 1
        self.open.append(connection)
        self.selector.register(connection, selectors.EVENT_WRITE, "new")

    def look(self):
        text, leaves = KINDS[self.kind]
        for key, _ in self.selector.select(0):
            connection = key.fileobj
            try:
                if key.data == "new":
                    connection.send(text())
                    if leaves:
                        self.forget(connection)
                    else:
                        self.selector.modify(connection, selectors.EVENT_READ, "there")
                elif not connection.recv(4096):
                    self.forget(connection)
            except OSError:
                self.forget(connection)

    def forget(self, connection):
        self.selector.unregister(connection)
        self.open.remove(connection)
        connection.close()

    def end(self):
        """How many came."""
        os.kill(self.pid, signal.SIGTERM)
        with os.fdopen(self.count_read) as pipe:
            total = int(pipe.read() or 0)
        os.waitpid(self.pid, 0)
        return total


class Measured:
    """One job among strangers, or beside them."""

    def __init__(self, kind, flags, elsewhere=False):
        seconds = flags.seconds
        words = ["op=all_reduce:ring", "count=16384", f"seconds={seconds}", "victim=1", "at=before", "how=sleep",
                 f"compute={flags.late}"]
        job = Job([PROGRAMS / "fault_rank", *words], RANKS, {"TUTTI_TRANSPORT": "tcp"})
        crowd = Crowd(kind, job.mark, flags.most, elsewhere) if kind else None
        self.memory_kib = self.descriptors = 0
        job.wait_for(lambda: self.look(job), 30)
        self.join_s = time.monotonic() - job.started - flags.late
        end = time.monotonic() + 60
        while job.launchers[0].poll() is None and time.monotonic() < end:
            self.look(job)
            time.sleep(0.05)
        self.strangers = crowd.end() if crowd else 0
        in_time = job.wait(1)
        words = job.last_words()
        self.problems = job.wrong() + job.left + ([] if in_time else ["it hung"])
        self.problems += [line["message"] for line in words.values() if line["code"] != "ok"]
        self.problems += [] if len(words) == RANKS else [f"{len(words)} ranks ended well: {job.stderr()}"]
        self.done = words[0]["done"] / seconds if 0 in words else 0
        job.close()

    def look(self, job):
        for pid in processes_with(job.mark):
            self.memory_kib = max(self.memory_kib, resident_kib(pid))
            self.descriptors = max(self.descriptors, len(list_descriptors(pid)))
        return len([line for line in job.lines if line.get("ready")]) == RANKS


def slower(calm, among):
    """Per cent."""
    return 100 * (1 - among / calm) if calm else 0


def try_kind(kind, calm, flags):
    """Against runs made in turn, or the calm ones that are given."""
    calm, among = list(calm), []
    for _ in range(flags.runs):
        if len(calm) < flags.runs:
            calm.append(Measured(kind, flags, elsewhere=True))
        among.append(Measured(kind, flags))

    def middle(several, name):
        return statistics.median(getattr(one, name) for one in several)
    return {"kind": kind, "strangers": sum(one.strangers for one in among),
            "slower": slower(middle(calm, "done"), middle(among, "done")),
            "join": middle(among, "join_s") - middle(calm, "join_s"),
            "memory": max(one.memory_kib for one in among) - max(one.memory_kib for one in calm),
            "descriptors": max(one.descriptors for one in among) - max(one.descriptors for one in calm),
            "problems": [text for one in calm + among for text in one.problems]}


def read_flags():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--kind", choices=KINDS, action="append")
    flags.add_argument("--quick", action="store_true")
    flags.add_argument("--runs", type=int, default=3)
    flags.add_argument("--seconds", type=float, default=3.0, help="of work in each run")
    flags.add_argument("--late", type=float, default=1.0, help="seconds for which ranks wait for the last to join")
    flags.add_argument("--most", type=int, default=10000, help="connections that are open at once")
    flags.add_argument("--bound", type=float, default=5.0, help="per cent by which work may be slower")
    return flags.parse_args()


def main():
    flags = read_flags()
    if flags.quick:
        flags.runs, flags.seconds, flags.late, flags.most, flags.bound = 1, 0.3, 0.3, 300, 75.0
    calm = [Measured(None, flags)] if flags.quick else []
    failed = False
    print("| strangers | came | work slower | joining later | memory | descriptors | results |\n|---|---|---|---|---|---|---|")
    for kind in flags.kind or KINDS:
        row = try_kind(kind, calm, flags)
        over = [what for what, is_over in (("work", row["slower"] > flags.bound), ("joining", row["join"] > 1.0),
                                           ("memory", row["memory"] > 16 * 1024),
                                           ("descriptors", row["descriptors"] > 1024)) if is_over]
        verdict = "wrong" if row["problems"] else "exact"
        verdict += f", over the bound: {', '.join(over)}" if over else ""
        print(f"| {kind} | {row['strangers']} | {row['slower']:+.1f} % | {row['join']:+.2f} s | {row['memory']:+} KiB "
              f"| {row['descriptors']:+} | {verdict} |", flush=True)
        for problem in row["problems"]:
            print(f"{kind}: {problem}", file=sys.stderr)
        failed = failed or bool(over or row["problems"])
    return failed


if __name__ == "__main__":
    sys.exit(main())
