"""A Slurm cluster of two emulated hosts: munged, slurmctld and slurmd from Debian's packages, in a folder of their
own and with processes that end with their hosts. Nothing of the machine's own Slurm is touched."""
import os
import shutil
import subprocess
import time

import emulated_hosts

NODES = ("node1", "node2")
CONF = """ClusterName=test
SlurmctldHost=node1({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits until its old credentials have expired; less than 5 s is refused.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
KillWait=2
{nodes}PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
DAEMONS = ("munged", "slurmctld", "slurmd")
# Root's, and not in everybody's PATH.
SBIN = ":/usr/sbin:/sbin"


def unavailable():
    missing = [name for name in (*DAEMONS, "srun") if not shutil.which(name, path=os.environ["PATH"] + SBIN)]
    if missing:
        return f"Slurm is not installed: there is no {', '.join(missing)}"
    return emulated_hosts.unavailable()


class SlurmCluster:
    def __init__(self, folder, environment, limit_s):
        self.folder, self.limit_s, self.daemons = folder, limit_s, []
        self.environment = {**environment, "SLURM_CONF": f"{folder}/slurm.conf", "PATH": environment["PATH"] + SBIN}
        self.hosts = emulated_hosts.Hosts(NODES)
        try:
            self.write_files()
            files = [f"--{flag}={folder}/munge.{flag.split('-')[0]}"
                     for flag in ("key-file", "pid-file", "seed-file", "socket")]
            self.start("node1", "munged", "--foreground", *files)
            self.wait_until(lambda: os.path.exists(f"{folder}/munge.socket"), "munged answers")
            self.start("node1", "slurmctld", "-D")
            for node in NODES:
                self.start(node, "slurmd", "-D")
            self.wait_until(lambda: "idle 2" in self.ask("sinfo", "-h", "-o", "%T %D").stdout, "both nodes are idle")
        except BaseException:
            self.close()
            raise

    def write_files(self):
        os.chmod(self.folder, 0o755)  # munged insists
        os.mkdir(f"{self.folder}/state")
        nodes = "".join(f"NodeName={node} NodeAddr={self.hosts.address(node)} CPUs=2 State=UNKNOWN\n" for node in NODES)
        for name, mode, content in (
                ("cgroup.conf", 0o644, b"CgroupPlugin=cgroup/v1\n"),  # not looked for: no plugin needs one
                ("munge.key", 0o400, os.urandom(1024)),
                ("slurm.conf", 0o644, CONF.format(folder=self.folder, nodes=nodes,
                                                  address=self.hosts.address("node1")).encode())):
            with open(f"{self.folder}/{name}", "wb") as file:
                file.write(content)
            os.chmod(f"{self.folder}/{name}", mode)

    def start(self, node, *words):
        with open(f"{self.folder}/{words[0]}.{node}.out", "wb") as out:
            self.daemons.append(subprocess.Popen([*self.hosts.enter(node), *words], stdin=subprocess.DEVNULL,
                                                 stdout=out, stderr=out, env=self.environment))

    def ask(self, *words, **more):
        """Runs a command of Slurm's on the first node, in the cluster's folder, to its end."""
        return subprocess.run([*self.hosts.enter("node1")[:-1], f"--wd={self.folder}", *words], capture_output=True,
                              text=True, timeout=self.limit_s, env={**self.environment, **more})

    def wait_until(self, fact, what):
        deadline = time.monotonic() + self.limit_s
        while not fact():
            dead = [daemon.args for daemon in self.daemons if daemon.poll() is not None]
            if dead or time.monotonic() > deadline:
                raise AssertionError(f"not: {what}; ended: {dead}\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(f"{self.folder}/{name}", errors="replace") as file:
                    texts.append(f"== {name}\n" + "".join(file.readlines()[-20:]))
        return "\n".join(texts)

    def state(self, job):
        return self.ask("squeue", "-h", "-j", job, "-o", "%T", "--states=all").stdout.strip()

    def finish(self, job):
        """Waits until a job is over; returns how it ended and what it printed."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self.wait_until(lambda: self.state(job) in over, f"job {job} is over: it is {self.state(job)}")
        with open(f"{self.folder}/train-{job}.out") as file:
            return self.state(job), file.read()

    def close(self):
        self.hosts.close()  # and all that runs there
        for daemon in self.daemons:
            daemon.wait()
