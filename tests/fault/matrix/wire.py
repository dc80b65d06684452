"""Two emulated hosts and the wire between them, which can do what wires do.

    host 0: 10.214.0.1  ── tap ── this process ── tap ──  host 1: 10.214.0.2

Network namespaces have no name anywhere: a sleeping process holds each, and they vanish with it. Every frame
passes through a thread of ours, which may drop, delay, slow down, change or answer it.
"""
import ctypes
import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MTU = 9000
TCP, IPV4 = 6, 0x0800
FIN, RST, ACK = 0x01, 0x04, 0x10


def unavailable():
    """Why this machine cannot; None where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    try:
        Wire().close()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespace with a tap device: {error}"
    return None


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Segment:
    """A TCP segment inside a frame; `parse` gives None for anything else."""

    def __init__(self, frame, at, payload):
        self.frame, self.at, self.payload = bytearray(frame), at, payload
        self.ports = struct.unpack_from("!HH", frame, at)
        self.sequence, self.acknowledged = struct.unpack_from("!II", frame, at + 4)

    @staticmethod
    def parse(frame):
        if len(frame) < 54 or struct.unpack_from("!H", frame, 12)[0] != IPV4 or frame[23] != TCP:
            return None
        at = 14 + (frame[14] & 15) * 4
        payload = at + (frame[at + 12] >> 4) * 4
        return Segment(frame, at, payload)

    def sealed(self):
        """The frame with its TCP checksum made right: only what lies above TCP can see the change."""
        struct.pack_into("!H", self.frame, self.at + 16, 0)
        length = struct.unpack_from("!H", self.frame, 16)[0] - (self.at - 14)
        body = bytes(self.frame[self.at:self.at + length])
        pseudo = bytes(self.frame[26:34]) + struct.pack("!BBH", 0, TCP, length)
        struct.pack_into("!H", self.frame, self.at + 16, checksum(pseudo + body))
        return bytes(self.frame)

    def resets(self):
        """Two frames: for the receiver, as if from the sender, and for the sender, as if from the receiver."""
        def frame(ethernet, addresses, ports, sequence):
            ip = bytearray(struct.pack("!BBHHHBBH8s", 0x45, 0, 40, 0, 0, 64, TCP, 0, addresses))
            struct.pack_into("!H", ip, 10, checksum(bytes(ip)))
            tcp = struct.pack("!HHIIBBHHH", *ports, sequence, 0, 5 << 4, RST, 0, 0, 0)
            return Segment(ethernet + bytes(ip) + tcp, 34, 54).sealed()
        mac, ip = bytes(self.frame[0:12]), bytes(self.frame[26:34])
        forth = frame(mac + b"\x08\x00", ip, self.ports, self.sequence)
        back = frame(mac[6:] + mac[:6] + b"\x08\x00", ip[4:] + ip[:4], self.ports[::-1], self.acknowledged)
        return forth, back


class Wire:
    def __init__(self):
        self.holders, self.taps = [], []
        self.cut = set()        # hosts whose frames are lost
        self.delay_s = 0.0
        self.bytes_per_s = None
        self.on_segment = None  # called with (host, Segment); returns frames to (other, own) host or None
        self.queue, self.number, self.free_at = [], 0, [0.0, 0.0]
        try:
            for host in range(2):
                self.make_host(host)
        except BaseException:  # whoever holds a namespace does not end by himself
            self.close()
            raise
        self.stop_read, self.stop_write = os.pipe()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()

    @staticmethod
    def address(host):
        return f"10.214.0.{host + 1}"

    def make_host(self, host):
        holder = subprocess.Popen(["unshare", "-n", "sleep", "1000"])
        self.holders.append(holder)
        mine = os.readlink("/proc/self/ns/net")
        end = time.monotonic() + 5
        while self.namespace_of(holder.pid) in (None, mine):
            if time.monotonic() > end:
                raise OSError("unshare -n did not make a network namespace")
            time.sleep(0.002)
        failed = []
        thread = threading.Thread(target=self.open_tap, args=(holder.pid, failed))
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        for words in ("link set lo up", f"link set wire mtu {MTU}", f"addr add {self.address(host)}/24 dev wire",
                      "link set wire up"):
            self.ip(host, words)

    @staticmethod
    def namespace_of(pid):
        try:
            return os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            return None

    def open_tap(self, pid, failed):
        """In a thread of its own, which then ends: it has moved to another host."""
        try:
            with open(f"/proc/{pid}/ns/net") as namespace:
                if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TAP | IFF_NO_PI))
            self.taps.append(tap)
        except OSError as error:
            failed.append(error)

    def enter(self, host):
        """The words before a command that is to run on that host."""
        return ["nsenter", f"--net=/proc/{self.holders[host].pid}/ns/net"]

    def ip(self, host, words):
        subprocess.run([*self.enter(host), "ip", *words.split()], check=True, capture_output=True)

    def sysctl(self, host, name, value):
        subprocess.run([*self.enter(host), "sh", "-c", f"echo '{value}' > /proc/sys/net/{name}"], check=True)

    def carry(self):
        while True:
            wait = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else None
            readable, _, _ = select.select([*self.taps, self.stop_read], [], [], wait)
            if self.stop_read in readable:
                return
            for tap in readable:
                self.take(self.taps.index(tap))
            while self.queue and self.queue[0][0] <= time.monotonic():
                _, _, tap, frame = heapq.heappop(self.queue)
                self.give(tap, frame)

    def take(self, host):
        try:
            frame = os.read(self.taps[host], 65536)
        except OSError:
            return
        if host in self.cut:
            return
        frames = ((frame,), ())
        hook = self.on_segment
        segment = Segment.parse(frame) if hook else None
        if segment is not None:
            frames = hook(host, segment) or frames
        for to, several in ((1 - host, frames[0]), (host, frames[1])):
            for one in several:
                self.send(to, one)

    def send(self, to, frame):
        if not self.delay_s and not self.bytes_per_s:
            self.give(self.taps[to], frame)
            return
        now = time.monotonic()
        if self.bytes_per_s:
            self.free_at[to] = max(now, self.free_at[to]) + len(frame) / self.bytes_per_s
        due = max(now, self.free_at[to]) + self.delay_s
        self.number += 1
        heapq.heappush(self.queue, (due, self.number, self.taps[to], frame))

    @staticmethod
    def give(tap, frame):
        try:
            os.write(tap, frame)
        except OSError:  # the interface is down
            pass

    def close(self):
        if getattr(self, "thread", None):
            os.write(self.stop_write, b"x")
            self.thread.join()
            os.close(self.stop_read)
            os.close(self.stop_write)
        for tap in self.taps:
            os.close(tap)
        for holder in self.holders:
            holder.kill()
            holder.wait()
