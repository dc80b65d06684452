"""What a row needs around its job: hosts and a wire, a control group, a small disk; all gone at the end."""
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import wire as wires

CGROUP = Path("/sys/fs/cgroup")


class Unavailable(Exception):
    """This machine cannot do it; says why."""


def command(*words):
    """Like `env`: words that change what the rest of the command line may do."""
    return ["sh", "-c", " ".join(words) + ' exec "$@"', "sh"]


class Stage:
    """`{place}` in a row's words is its folder; settings are words such as hosts, memory=64M, disk=64K."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.place = Path(tempfile.mkdtemp(prefix="matrix-stage-"))
        self.stack.callback(shutil.rmtree, self.place, ignore_errors=True)
        self.wire = None
        self.launchers = [()]
        self.prefix, self.flags, self.environment = [], [], {}
        self.cpu = None   # folder of a cpu cgroup
        self.disk = None  # folder of a small disk

    def set(self, settings):
        for word in settings:
            name, _, value = word.partition("=")
            getattr(self, f"set_{name}")(value)

    def close(self):
        self.stack.close()

    def need_root(self, what):
        if os.geteuid() != 0:
            raise Unavailable(f"{what} needs root")

    def write_secret(self):
        path = self.place / "job.key"
        path.write_bytes(os.urandom(32))
        path.chmod(0o600)
        return str(path)

    # ---- network

    def set_hosts(self, _):
        why = wires.unavailable()
        if why:
            raise Unavailable(why)
        self.wire = wires.Wire()
        self.stack.callback(self.wire.close)
        self.launchers = [self.wire.enter(0), self.wire.enter(1)]
        self.flags += ["--nnodes", 2, "--node-rank", "{node}", "--rendezvous", f"{self.wire.address(0)}:29400",
                       "--secret-file", self.write_secret(), "--grace", "1"]

    def set_tiny_buffers(self, _):
        for host in range(2):
            for name in ("tcp_rmem", "tcp_wmem"):
                self.wire.sysctl(host, f"ipv4/{name}", "4096 4096 4096")

    def set_delay(self, value):
        self.wire.delay_s = float(value)

    def set_rate(self, value):
        self.wire.bytes_per_s = float(value)

    def set_other_version(self, _):
        def rewrite(host, segment):
            # {magic, version, …}: how every connection begins.
            if host != 1 or segment.frame[segment.payload:segment.payload + 4] != b"TUTI":
                return None
            segment.frame[segment.payload + 4] ^= 0x40
            return (segment.sealed(),), ()
        self.wire.on_segment = rewrite

    def set_port_in_use(self, _):
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        self.stack.callback(taken.close)
        self.flags += ["--nnodes", 2, "--node-rank", 0, "--rendezvous", f"127.0.0.1:{taken.getsockname()[1]}",
                       "--secret-file", self.write_secret()]

    # ---- limits

    def set_descriptors(self, value):
        self.prefix = ["prlimit", f"--nofile={value}:{value}"]

    def cgroup(self, controller):
        self.need_root("a control group")
        folder = CGROUP / controller / self.place.name
        unified = CGROUP / self.place.name
        if not (CGROUP / controller).is_dir():
            folder = unified
        try:
            folder.mkdir()
        except OSError as error:
            raise Unavailable(f"no {controller} control group can be made: {error}") from error
        self.stack.callback(self.remove_cgroup, folder)
        return folder

    @staticmethod
    def remove_cgroup(folder):
        with contextlib.suppress(OSError):
            folder.rmdir()

    def limit(self, folder, names, value):
        for name in names:
            if (folder / name).exists():
                (folder / name).write_text(str(value))
                return
        raise Unavailable(f"{folder} has none of {', '.join(names)}")

    def set_memory(self, value):
        folder = self.cgroup("memory")
        self.limit(folder, ("memory.max", "memory.limit_in_bytes"), value)
        for name in ("memory.swap.max", "memory.swappiness"):
            with contextlib.suppress(OSError):
                (folder / name).write_text("0")
        self.prefix = command(f"echo $$ > {folder}/cgroup.procs;")

    def set_cpu(self, value):
        """A share of one core, for processes that are put in later."""
        folder = self.cgroup("cpu")
        quota = int(float(value) * 100000)
        if (folder / "cpu.max").exists():
            (folder / "cpu.max").write_text(f"{quota} 100000")
        else:
            self.limit(folder, ("cpu.cfs_quota_us",), quota)
        self.cpu = folder

    # ---- disks and clocks

    def mount(self, path, size):
        self.need_root("a small disk")
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path], capture_output=True)
        if done.returncode:
            raise Unavailable(f"no tmpfs can be mounted: {done.stderr.decode().strip()}")
        self.stack.callback(subprocess.run, ["umount", "-l", str(path)], check=False)

    def set_disk(self, size):
        self.disk = self.place / "disk"
        self.mount(self.disk, size)

    def set_full_shm(self, _):
        self.need_root("a mount namespace")
        self.prefix = ["unshare", "-m", *command("mount -t tmpfs -o size=16k none /dev/shm &&",
                                                 "head -c 16384 /dev/zero > /dev/shm/full;")]

    def set_clock(self, _):
        from job import PROGRAMS
        library = PROGRAMS / "libstepped_clock.so"
        if not library.exists():
            raise Unavailable(f"{library} is not built")
        self.environment["LD_PRELOAD"] = str(library)
