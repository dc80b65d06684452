#!/usr/bin/env python3
"""Fails when the tests of BUILD_DIR left something behind: processes, listening sockets, files in
/dev/shm, network namespaces or interfaces.

left_behind.py BUILD_DIR              looks; what is just going away has a few seconds to do so
left_behind.py BUILD_DIR --self-test  leaves one of each behind and expects to find it
"""
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 5.0


def processes():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def read(path):
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:  # it ended, or is none of ours
        return ""


def exe_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def is_orphan_rank(pid):
    """A child of a launcher that is gone, whatever program it runs."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    environment = read(f"/proc/{pid}/environ").split("\0")
    return bool(fields) and fields[1] == "1" and any(v.startswith("TUTTI_RANK=") for v in environment)


def family():
    """This process and those that started it: they may run from anywhere."""
    pids, pid = set(), os.getpid()
    while pid > 1:
        pids.add(pid)
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        pid = int(fields[1]) if fields else 0
    return pids


def leftover_processes(build):
    prefix = str(build) + "/"
    for pid in set(processes()) - family():
        if exe_of(pid).startswith(prefix) or is_orphan_rank(pid):
            yield pid, read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()


def listening_inodes():
    """inode -> address of every TCP socket that listens, and of every abstract Unix one."""
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in read(table).splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A":
                inodes[fields[9]] = f"port {int(fields[1].rpartition(':')[2], 16)}"
    for row in read("/proc/net/unix").splitlines()[1:]:
        fields = row.split()
        if len(fields) > 7 and fields[7].startswith("@"):
            inodes[fields[6]] = fields[7]
    return inodes


def sockets_of(pid, inodes):
    found = []
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            found.append(inodes.get(target[8:-1]))
    return sorted(address for address in found if address)


def ip_names(*command):
    """The names that `ip` lists; none where there is no `ip`, for then nobody made any."""
    if not shutil.which("ip"):
        return []
    answer = subprocess.run(["ip", *command], capture_output=True, text=True).stdout
    return [word.rstrip(":").split("@")[0] for word in answer.split()]


def left_behind(build):
    complaints = []
    inodes = listening_inodes()
    for pid, command in leftover_processes(build):
        complaints.append(f"process {pid} is still there: {command}")
        for address in sockets_of(pid, inodes):
            complaints.append(f"process {pid} still listens on {address}")
    for name in sorted(os.listdir("/dev/shm")):
        if "tutti" in name:
            complaints.append(f"/dev/shm/{name} was left")
    for name in sorted(set(ip_names("netns", "list"))):
        if name.startswith("tutti"):
            complaints.append(f"network namespace {name} was left")
    for name in sorted(set(ip_names("-o", "link"))):
        if name.startswith("tutti"):
            complaints.append(f"network interface {name} was left")
    return complaints


def look(build):
    deadline = time.monotonic() + PATIENCE_S
    while (complaints := left_behind(build)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return complaints


def self_test(build):
    """Leaves a listening process and a file behind, both of its own making, and takes them back."""
    program = build / f"left_behind_self_test_{os.getpid()}"
    shm = Path(f"/dev/shm/tutti_self_test_{os.getpid()}")
    shutil.copy(shutil.which("sleep"), program)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.set_inheritable(True)
        port = listener.getsockname()[1]
        child = subprocess.Popen([program, "600"], close_fds=False)
    try:
        shm.touch()
        found = "\n".join(left_behind(build))
    finally:
        child.kill()
        child.wait()
        shm.unlink(missing_ok=True)
        program.unlink()
    wanted = [f"process {child.pid} is still there", f"listens on port {port}", f"{shm} was left"]
    return [f"was not found: {what}" for what in wanted if what not in found]


def main():
    build = Path(sys.argv[1]).resolve()
    complaints = self_test(build) if "--self-test" in sys.argv else look(build)
    print("\n".join(complaints) or "nothing was left behind")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
