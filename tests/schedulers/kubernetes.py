"""The manifests of deploy/kubernetes: valid, and good for training in the environment that Kubernetes makes of them."""
import copy
import glob
import json
import os
import signal
import unittest

import emulated_hosts
import pods
from scheduling import LIMIT, QUICK, SOURCE, SchedulerTest

try:
    import jsonschema
    import yaml
except ImportError:
    jsonschema = None

FOLDER = os.path.join(SOURCE, "deploy", "kubernetes")


def read(name):
    with open(os.path.join(FOLDER, name)) as file:
        return list(yaml.safe_load_all(file))


def check(document):
    with open(os.path.join(FOLDER, "schemas", document["kind"].lower() + ".json")) as file:
        jsonschema.Draft202012Validator(json.load(file)).validate(document)


@unittest.skipUnless(jsonschema, "python3-jsonschema or python3-yaml is not installed")
class Manifests(unittest.TestCase):
    def test_all_are_valid(self):
        paths = glob.glob(os.path.join(FOLDER, "*.yaml"))
        self.assertTrue(paths)
        for path in paths:
            for document in read(path):
                check(document)

    def test_mistakes_are_found(self):
        def template(job):
            return job["spec"]["template"]["spec"]
        job = read("job.yaml")[1]
        for mistake in (lambda job: job["spec"].pop("completions"),
                        lambda job: job["spec"].update(completionMode="indexed"),
                        lambda job: job["spec"].update(backoffLimits=3),
                        lambda job: template(job).pop("restartPolicy"),
                        lambda job: template(job)["containers"][0].update(comand=["true"]),
                        lambda job: template(job)["containers"][0]["command"].append(3),
                        lambda job: template(job)["volumes"][0]["secret"].update(defaultMode=1024)):
            wrong = copy.deepcopy(job)
            mistake(wrong)
            with self.assertRaises(jsonschema.ValidationError):
                check(wrong)


@unittest.skipUnless(jsonschema, "python3-jsonschema or python3-yaml is not installed")
class Pods(SchedulerTest):
    def setUp(self):
        why = emulated_hosts.unavailable()
        if why:
            self.skipTest(why)
        super().setUp()
        self.key = os.path.join(self.folder, "key")
        for folder in (self.key, self.save):
            os.mkdir(folder)
        with open(os.path.join(self.key, "job.key"), "wb") as file:
            file.write(os.urandom(32))

    def cluster(self, workload, first_start="--die-at 4:1"):
        command = workload.container()["command"]
        for flag, value in {"--ranks": 2, **QUICK}.items():
            command = pods.set_flag(command, flag, value)
        workload.container()["command"] = command
        path = os.path.dirname(self.failing_once("/mnt/checkpoints", first_start))
        cluster = pods.Cluster(workload, self.environment(PATH=f"{path}:{self.environment()['PATH']}"),
                               claims={"checkpoints": self.save}, secrets={"train-key": self.key})
        self.addCleanup(cluster.close)
        return cluster

    def job(self):
        service, job = read("job.yaml")
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"])
        return pods.Workload(job["metadata"]["name"], job["spec"], service["metadata"]["name"], {})

    def test_an_indexed_job_goes_on_inside_of_its_pods(self):
        failures, output = self.cluster(self.job()).run_as_job(LIMIT)
        self.assertEqual(failures, 0, output)
        self.assertIn("restart 1 of 3", output)
        self.check_went_on(output)

    def lose_a_pod(self, index):
        """After the first checkpoint; training is slow until then."""
        cluster, lost = self.cluster(self.job(), "--inject-delay 0:400"), []

        def lose(running):
            if not lost and os.path.exists(os.path.join(self.save, "latest")):
                lost.append(running[index].pid)
                cluster.signal(running[index], signal.SIGKILL)
        failures, output = cluster.run_as_job(LIMIT, lose)
        self.assertEqual(len(lost), 1)
        self.assertGreaterEqual(failures, 1)
        self.check_went_on(output)

    def test_a_pod_that_is_lost_is_made_again_and_its_ranks_go_on(self):
        self.lose_a_pod(1)

    def test_the_first_pod_may_be_lost_too(self):
        self.lose_a_pod(0)

    def test_a_jobset_starts_all_pods_again_and_they_go_on(self):
        (jobset,) = read("jobset.yaml")
        spec, name = jobset["spec"], jobset["metadata"]["name"]
        (replicated,) = spec["replicatedJobs"]
        self.assertTrue(spec["network"]["enableDNSHostnames"])
        workload = pods.Workload(f"{name}-{replicated['name']}-0", replicated["template"]["spec"],
                                 spec["network"].get("subdomain", name), {"jobset.sigs.k8s.io/jobset-name": name})
        cluster = self.cluster(workload)
        outputs = []
        for attempt in range(spec["failurePolicy"]["maxRestarts"] + 1):
            workload.annotations["jobset.sigs.k8s.io/restart-attempt"] = str(attempt)
            codes, output = cluster.run_as_jobset(LIMIT)
            outputs.append(output)
            if not any(codes):
                break
        self.assertEqual((attempt, codes), (1, [0, 0]), outputs)
        self.assertIn("SIGKILL", outputs[0])
        self.check_went_on(outputs[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
