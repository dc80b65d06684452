"""What is done to a running job from outside. Each is called once all ranks have run every collective."""
import os
import signal
import socket
import time

VICTIM = 1


def kill_launcher(job, stage):
    job.strike("SIGKILL to the launcher")
    os.kill(launcher_pid(job, 0), signal.SIGKILL)


def launcher_pid(job, node):
    """A prefix such as nsenter executes what follows: the process stays the same."""
    return job.launchers[node].pid


def stop(seconds):
    def act(job, stage):
        pid = job.pids()[VICTIM]
        job.strike(f"SIGSTOP for {seconds or 'ever'}")
        os.kill(pid, signal.SIGSTOP)
        if seconds:
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
    return act


def slow_down(job, stage):
    (stage.cpu / "cgroup.procs").write_text(str(job.pids()[VICTIM]))
    job.strike("its share of a core cut")


def cut(hosts, heal_after=None):
    def act(job, stage):
        job.strike(f"frames of host {' and '.join(map(str, hosts))} are lost")
        stage.wire.cut = set(hosts)
        if heal_after:
            time.sleep(heal_after)
            stage.wire.cut = set()
    return act


def link_down(job, stage):
    job.strike("link down on host 1")
    stage.wire.ip(1, "link set wire down")


def blackhole(job, stage):
    job.strike("blackhole route on host 1")
    stage.wire.ip(1, f"route replace blackhole {stage.wire.address(0)}/32")


def wrong_neighbour(job, stage):
    job.strike("wrong neighbour entry on host 1")
    stage.wire.ip(1, f"neigh replace {stage.wire.address(0)} lladdr 02:00:00:00:00:99 dev wire nud permanent")


def half_open(job, stage):
    """A rank dies when nobody can be told any more."""
    stage.wire.cut = {0, 1}
    job.strike("wire cut, then SIGKILL to host 1's ranks")
    for rank in (2, 3):
        os.kill(job.pids()[rank], signal.SIGKILL)


def once(wanted, change):
    """Calls `change` for the first full segment of data."""
    state = {"done": False}

    def hook(host, segment):
        if state["done"] or host != 1 or len(segment.frame) - segment.payload < wanted:
            return None
        state["done"] = True
        return change(segment)
    return hook


def reset(job, stage):
    def change(segment):
        job.strike("RST for both ends of a stream")
        forth, back = segment.resets()
        return (forth,), (back,)
    stage.wire.on_segment = once(4000, change)


def flip(job, stage):
    def change(segment):
        job.strike("one bit of a frame flipped, TCP's checksum made right")
        segment.frame[segment.payload + 3000] ^= 0x10
        return (segment.sealed(),), ()
    stage.wire.on_segment = once(4000, change)


def strangers(job, stage):
    """More silent connections than there are places, at every port on which the job listens."""
    import listening
    job.strike("strangers connect")
    for port in listening.ports(job.mark):
        for _ in range(50):
            connection = socket.socket()
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            stage.stack.callback(connection.close)
