"""What Kubernetes makes of the manifests, as far as a pod can see it: names, variables, volumes, restarts. Pods are
emulated hosts; the Job's controller and JobSet's are played here, from what their documentation promises."""
import os
import re
import signal
import subprocess
import time

import emulated_hosts

DOMAIN = "default.svc.cluster.local"


def set_flag(words, flag, value):
    """The command with another value of --flag=value."""
    assert sum(word.startswith(flag + "=") for word in words) == 1, (flag, words)
    return [f"{flag}={value}" if word.startswith(flag + "=") else word for word in words]


class Workload:
    """The pods of one (child) Job. `annotations`: what its controller notes on every pod."""

    def __init__(self, name, spec, subdomain, annotations):
        assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
        self.name, self.pod, self.subdomain, self.annotations = name, spec["template"]["spec"], subdomain, annotations
        self.backoff_limit = spec["backoffLimit"]
        self.hostnames = [f"{name}-{index}" for index in range(spec["completions"])]

    def aliases(self):
        """What the cluster's DNS answers to, with the search list of a pod."""
        return {host: [f"{host}.{self.subdomain}.{DOMAIN}", f"{host}.{self.subdomain}"] for host in self.hostnames}

    def container(self):
        (container,) = self.pod["containers"]
        return container

    def environment(self, index):
        metadata = {**self.annotations, "batch.kubernetes.io/job-completion-index": str(index)}
        found = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": self.hostnames[index]}
        for variable in self.container().get("env", []):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            key = re.fullmatch(r"metadata\.annotations\['(.*)'\]", path)
            found[variable["name"]] = metadata[key[1]] if key else variable["value"]
        return found

    def command(self, index):
        """$(NAME) is replaced where the variable exists, as the kubelet does."""
        values = self.environment(index)
        return [re.sub(r"\$\((\w+)\)", lambda name: values.get(name[1], name[0]), word)
                for word in self.container()["command"]]


class Cluster:
    """Runs one workload's pods. `claims` and `secrets`: folders of this machine."""

    def __init__(self, workload, environment, claims, secrets):
        self.workload, self.outside, self.claims, self.secrets = workload, environment, claims, secrets
        self.hosts = emulated_hosts.Hosts(workload.hostnames, workload.aliases())
        for host in workload.hostnames:
            for mount in workload.container()["volumeMounts"]:
                self.mount(host, mount)

    def mount(self, host, mount):
        (volume,) = [one for one in self.workload.pod["volumes"] if one["name"] == mount["name"]]
        source = self.claims.get(volume.get("persistentVolumeClaim", {}).get("claimName"))
        if "secret" in volume:
            source = self.secrets[volume["secret"]["secretName"]]
            for name in os.listdir(source):
                os.chmod(os.path.join(source, name), volume["secret"]["defaultMode"])
        assert source, volume
        subprocess.run([*self.hosts.enter(host), "sh", "-c", 'mkdir -p "$2" && mount --bind "$1" "$2"', "sh", source,
                        mount["mountPath"]], check=True)

    def start(self, index):
        base = {name: self.outside[name] for name in ("PATH", "MARK", "OMP_NUM_THREADS", "TUTTI_TUNING")}
        return subprocess.Popen(
            [*self.hosts.enter(self.workload.hostnames[index]), *self.workload.command(index)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**base, **self.workload.environment(index)})

    def signal(self, pod, which):
        """To the container's own process, not to that which has entered its namespaces."""
        with open(f"/proc/{pod.pid}/task/{pod.pid}/children") as file:
            for child in file.read().split():
                os.kill(int(child), which)

    def run_as_jobset(self, limit_s):
        """All pods once: when one fails, the others are asked to end. Returns their codes and what they printed."""
        running = [self.start(index) for index in range(len(self.workload.hostnames))]
        deadline = time.monotonic() + limit_s
        while any(pod.poll() is None for pod in running) and not any(pod.poll() for pod in running):
            assert time.monotonic() < deadline, "the pods do not end"
            time.sleep(0.02)
        for pod in running:
            if pod.poll() is None:
                self.signal(pod, signal.SIGTERM)
        outputs = [pod.communicate(timeout=limit_s)[0] for pod in running]
        return [pod.returncode for pod in running], "".join(outputs)

    def run_as_job(self, limit_s, meanwhile=lambda running: None):
        """Every pod until it ends well; one that fails is made again, `backoffLimit` times in all. Returns how often
        that was, and what all of them printed. `meanwhile` sees the pods, again and again."""
        running = [self.start(index) for index in range(len(self.workload.hostnames))]
        deadline, failures, outputs = time.monotonic() + limit_s, 0, []
        while any(running):
            assert time.monotonic() < deadline, "the pods do not end"
            meanwhile(running)
            time.sleep(0.01)
            for index, pod in enumerate(running):
                if pod is None or pod.poll() is None:
                    continue
                outputs.append(pod.communicate()[0])
                running[index] = None
                if pod.returncode != 0:
                    failures += 1
                    assert failures <= self.workload.backoff_limit, "".join(outputs)
                    running[index] = self.start(index)
        return failures, "".join(outputs)

    def close(self):
        self.hosts.close()
