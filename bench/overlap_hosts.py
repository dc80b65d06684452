"""Several hosts on one machine, for bench/overlap: network namespaces on a bridge that lies in a
namespace of its own, so that nothing of it shows outside and nothing can be left behind but names.

    with Hosts(4, rate_mbit=1000) as hosts:
        hosts.run_everywhere(lambda rank: ["ip", "addr"], lambda rank: {}, limit_s=10)

Every host has the address 10.84.0.(rank + 1) and is shaped by tbf in both directions. Ranks that
fail, or take longer than the limit, end the run with RunFailed; Ctrl-C ends the ranks too.
"""
import os
import signal
import subprocess
import tempfile
import time


class RunFailed(Exception):
    """What went wrong, in a line or a few."""


def shell(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunFailed(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


class Hosts:
    """`count` namespaces; none of them (count ranks on this host) when rate_mbit is None."""

    def __init__(self, count, rate_mbit, others=None):
        """`others`: by number, hosts that have another rate."""
        self.count, self.rate_mbit, self.others = count, rate_mbit, others or {}
        self.names = [f"ov{os.getpid()}h{i}" for i in range(count)]
        self.switch = f"ov{os.getpid()}sw"

    @property
    def separate(self):
        return self.rate_mbit is not None

    def address(self, rank):
        return f"10.84.0.{rank + 1}" if self.separate else "127.0.0.1"

    def __enter__(self):
        if not self.separate:
            return self
        try:
            self.build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def build(self):
        for name in [self.switch, *self.names]:
            shell("ip", "netns", "add", name)
            shell("ip", "-n", name, "link", "set", "lo", "up")
        shell("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        shell("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            shell("ip", "-n", name, "link", "add", "cable", "type", "veth",
                  "peer", "name", f"port{i}", "netns", self.switch)
            shell("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up")
            shell("ip", "-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "cable")
            shell("ip", "-n", name, "link", "set", "cable", "up")
        self.shape()

    def shape(self):
        """Each host sends and receives at the rate. The queue holds some milliseconds.

        What a shaper lets pass at once after a rest, a wire would not: as little as packets of 16 KiB allow.
        """
        for i, name in enumerate(self.names):
            rate = self.others.get(i, self.rate_mbit)
            for place, device in ((name, "cable"), (self.switch, f"port{i}")):
                shell("ip", "-n", place, "link", "set", device, "gso_max_size", "16384")
                shell("tc", "-n", place, "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                      f"{rate}mbit", "burst", "32kb", "latency", "20ms")

    def remove(self):
        if not self.separate:
            return
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def inside(self, rank, words):
        return ["ip", "netns", "exec", self.names[rank], *words] if self.separate else words

    def run_everywhere(self, command_of, environment_of, limit_s):
        """One process on each host; waits for all of them. The first that fails ends the others."""
        with tempfile.TemporaryFile("w+") as output:
            processes = []
            try:
                for rank in range(self.count):
                    processes.append(subprocess.Popen(
                        self.inside(rank, command_of(rank)), stdout=output,
                        stderr=subprocess.STDOUT, start_new_session=True,
                        env={**os.environ, **environment_of(rank)}))
                self.wait(processes, limit_s, output)
            finally:
                end(processes)

    def wait(self, processes, limit_s, output):
        deadline = time.monotonic() + limit_s
        while any(process.poll() is None for process in processes):
            failed = [i for i, p in enumerate(processes) if p.poll() not in (None, 0)]
            if failed:
                break
            if time.monotonic() > deadline:
                raise RunFailed(f"no end after {limit_s} s\n{tail(output)}")
            time.sleep(0.05)
        for rank, process in enumerate(processes):
            if process.poll() not in (None, 0):
                raise RunFailed(f"rank {rank} ended with {process.returncode}\n{tail(output)}")


def end(processes):
    """Their whole sessions: a launcher's ranks too."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, sign)
        deadline = time.monotonic() + 5
        while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
            time.sleep(0.02)


def tail(output):
    output.seek(0)
    return "".join(f"  {line}" for line in output.readlines()[-12:])
