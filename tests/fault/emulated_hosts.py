"""Hosts on one machine, as different as namespaces make them: each has a name, an address, processes and an
/etc/hosts of its own, and a cable to one switch, which can be made slow.

    with Hosts(["a", "b"]) as hosts:
        subprocess.run([*hosts.enter("a"), "ping", "-c", "1", "b"])

Nothing has a name outside: a process holds each host, and all that runs there ends with it.
"""
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading

# Ends when its standard input does, so also when the test is killed.
HOLD = ('mount --bind "$1" /etc/hosts && mount -t tmpfs tmpfs /mnt && mount -t sysfs sysfs /sys && hostname "$2"'
        ' && ip link set lo up && echo ready && exec cat')


def unavailable():
    """Why this machine cannot; None where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Hosts(["probe"]) as hosts:
            hosts.shape("probe", 100)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no hosts can be emulated: {error}"
    return None


# Hands its host, command and standard streams to a socket, and ends with the code that comes back. ssh's own flags
# are left out.
CLIENT = """#!{python}
import array, os, socket, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    del words[:2 if words[0] == "-o" else 1]
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    words = "\\0".join([os.getcwd(), *words]).encode()
    server.sendmsg([len(words).to_bytes(4, "big") + words],
                   [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    os._exit(int(server.recv(16) or b"255"))
"""


class RemoteShells:
    """What stands behind ssh: a socket in the file system, which all hosts share."""

    def __init__(self, hosts, program, environment):
        self.hosts, self.program, self.environment = hosts, program, environment
        with open(program, "w") as file:
            file.write(CLIENT.format(python=sys.executable, path=program + ".socket"))
        os.chmod(program, 0o755)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(program + ".socket")
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self.run, args=(client,), daemon=True).start()

    def run(self, client):
        with client:
            data, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
            while len(data) < 4 + int.from_bytes(data[:4], "big"):
                data += client.recv(1 << 20)
            folder, host, *command = data[4:].decode().split("\0")
            if host in self.hosts.names:
                code = subprocess.run([*self.hosts.enter(host, folder), "sh", "-c", " ".join(command)],
                                      stdin=streams[0], stdout=streams[1], stderr=streams[2],
                                      env=self.environment).returncode
            else:
                os.write(streams[2], f"no route to {host}\n".encode())
                code = 255
            for stream in streams:
                os.close(stream)
            try:
                client.sendall(str(code % 256).encode())
            except OSError:  # nobody waits for it any more
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Hosts:
    def __init__(self, names, aliases=None):
        """`aliases`: further names of a host, for everybody's /etc/hosts."""
        self.names, self.holders, self.folder = list(names), {}, tempfile.TemporaryDirectory()
        self.server = None
        self.table = os.path.join(self.folder.name, "hosts")
        with open(self.table, "w") as file:
            file.write("127.0.0.1 localhost\n")
            for name in self.names:
                file.write(" ".join([self.address(name), name, *(aliases or {}).get(name, [])]) + "\n")
        try:
            self.hold("switch")
            self.command(["ip", "link", "add", "bridge", "type", "bridge"], "switch")
            self.command(["ip", "link", "set", "bridge", "up"], "switch")
            for name in self.names:
                self.hold(name)
                self.lay_cable(name)
        except BaseException:
            self.close()
            raise

    def address(self, name):
        return f"10.215.0.{self.names.index(name) + 1}"

    def hold(self, name):
        holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child",
             "sh", "-c", HOLD, "sh", self.table, name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.holders[name] = holder
        readable, _, _ = select.select([holder.stdout], [], [], 20)
        if not readable or holder.stdout.readline() != b"ready\n":
            holder.kill()
            raise OSError(holder.stderr.read().decode().strip() or "unshare does not answer")

    def enter(self, name, folder=None):
        """The words before a command that is to run on that host."""
        spaces = f"/proc/{self.holders[name].pid}/ns"
        return ["nsenter", f"--net={spaces}/net", f"--mount={spaces}/mnt", f"--uts={spaces}/uts",
                f"--pid={spaces}/pid_for_children", "--wd=" + (folder or os.getcwd())]

    def command(self, words, name):
        """For its network alone; all else is that of this machine."""
        subprocess.run(["nsenter", f"--net=/proc/{self.holders[name].pid}/ns/net", *words], check=True,
                       capture_output=True)

    @staticmethod
    def port(name):
        return "to-" + name[-12:]

    def lay_cable(self, name):
        self.command(["ip", "link", "add", self.port(name), "type", "veth", "peer", "name", "eth0", "netns",
                      f"/proc/{self.holders[name].pid}/ns/net"], "switch")
        self.command(["ip", "link", "set", self.port(name), "master", "bridge", "up"], "switch")
        self.command(["ip", "addr", "add", self.address(name) + "/24", "dev", "eth0"], name)
        self.command(["ip", "link", "set", "eth0", "up"], name)

    def shape(self, name, megabits_per_s):
        """In both directions."""
        for host, device in ((name, "eth0"), ("switch", self.port(name))):
            self.command(["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{megabits_per_s}mbit",
                          "burst", "128kb", "latency", "20ms"], host)

    def remote_shell(self, environment=None):
        """A program that is called with a host's name and a command, as ssh is, from outside or from any host.
        `environment`: what commands find there; none: that of this process."""
        if not self.server:
            self.server = RemoteShells(self, os.path.join(self.folder.name, "ssh"), environment)
        return self.server.program

    def close(self):
        if self.server:
            self.server.close()
        for holder in self.holders.values():
            holder.kill()
        for holder in self.holders.values():
            for stream in (holder.stdin, holder.stdout, holder.stderr):
                stream.close()
            holder.wait()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
