"""The manifests of deploy/kubernetes: valid, and good for training in the environment that Kubernetes makes of them."""
import copy
import glob
import json
import os
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

    def cluster(self, workload):
        command = workload.container()["command"]
        for flag, value in {"--ranks": 2, **QUICK}.items():
            command = pods.set_flag(command, flag, value)
        workload.container()["command"] = command
        path = os.path.dirname(self.failing_once("/mnt/checkpoints"))
        cluster = pods.Cluster(workload, self.environment(PATH=f"{path}:{self.environment()['PATH']}"),
                               claims={"checkpoints": self.save}, secrets={"train-key": self.key})
        self.addCleanup(cluster.close)
        return cluster

    def test_an_indexed_job_goes_on_inside_of_its_pods(self):
        service, job = read("job.yaml")
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"])
        workload = pods.Workload(job["metadata"]["name"], job["spec"], service["metadata"]["name"], {})
        codes, output = self.cluster(workload).run(LIMIT)
        self.assertEqual(codes, [0, 0], output)
        self.assertIn("restart 1 of 3", output)
        self.check_went_on(output)

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
            codes, output = cluster.run(LIMIT)
            outputs.append(output)
            if not any(codes):
                break
        self.assertEqual((attempt, codes), (1, [0, 0]), outputs)
        self.assertIn("SIGKILL", outputs[0])
        self.check_went_on(outputs[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
