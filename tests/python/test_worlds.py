"""Other ways to meet, the package around the extension, and the programs that use it."""
import importlib.util
import json
import shutil
import subprocess
import sys

import jobs
import pytest
import world_bodies as bodies

ROOT = jobs.HERE.parent.parent


def lacks(module):
    absent = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(absent, reason=f"{module} is missing")


def test_ranks_can_be_threads():
    results, = jobs.run_ranks(1, bodies.threads_of_one_process)
    assert results == [[6.0, [0, 1, 2, 3]]] * 4


def test_the_first_program_of_the_tutorial_prints_the_mean(tmp_path):
    tutorial = (ROOT / "docs/tutorials/python.md").read_text(encoding="utf-8")
    program = tmp_path / "first.py"
    program.write_text(tutorial.split("```python\n")[1].split("```")[0], encoding="utf-8")
    done = jobs.tutti_run(4, sys.executable, str(program))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 4 [1.5 1.5 1.5]" for rank in range(4)]


def test_ranks_meet_at_a_server():
    import tutti
    with tutti.StoreServer("127.0.0.1:0", secret="known to the ranks") as server:
        answers = jobs.run_ranks(3, bodies.meet_at_a_server, STORE_ADDRESS=server.address)
    assert answers == [[0, 1, 2]] * 3


def test_a_server_without_a_secret_is_for_this_user_alone():
    import tutti
    for address in ("127.0.0.1:0", "0.0.0.0:0"):
        with pytest.raises(tutti.InvalidArgument, match="there is no secret"):
            tutti.StoreServer(address)
    with pytest.raises(tutti.InvalidArgument, match="too short"):
        tutti.StoreServer("127.0.0.1:0", secret="guess me")
    with tutti.StoreServer() as server:
        assert server.address.startswith("@")
        tutti.Store.connect(server.address).set("key", "value")


@pytest.mark.parametrize("body, n, expected", [
    (bodies.stores, 1, [True]),
    (bodies.actors, 1, [[0, 0, 0]]),
    (bodies.pool, 1, [["PeerLost", "rank 2 is gone", "peer_lost", 0, 2, 17]]),
    (bodies.again_and_again, 2, [True, True]),
], ids=lambda value: getattr(value, "__name__", None))
def test_body(body, n, expected):
    assert jobs.run_ranks(n, body) == expected


@lacks("torch")
def test_torch_tensors_travel_by_dlpack():
    for answer in jobs.run_ranks(2, bodies.torch_tensors):
        assert answer == "bfloat16" or "out=" in answer


@lacks("ml_dtypes")
def test_types_that_ml_dtypes_adds():
    assert jobs.run_ranks(2, bodies.added_types) == [True, True]


def test_errors_are_of_use_without_the_extension(tmp_path):
    (tmp_path / "tutti").mkdir()
    for file in (ROOT / "bindings/python/tutti").glob("*.py"):
        shutil.copy(file, tmp_path / "tutti")
    program = ("import tutti, tutti.errors\n"
               "assert issubclass(tutti.PeerLost, ConnectionError)\n"
               "try: tutti.init()\n"
               "except ImportError as error: assert '_tutti' in str(error)\n"
               "else: raise SystemExit(1)\n")
    environment = {**jobs.environment(), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env=environment, timeout=jobs.LIMIT)
    assert done.returncode == 0, done.stderr


def test_every_code_has_an_exception():
    import pickle

    from tutti import errors
    words = ["invalid_argument", "mismatch", "unsupported", "timed_out", "peer_lost", "aborted",
             "io", "out_of_memory", "corrupt", "internal"]
    for word in words + ["of_tomorrow"]:
        error = errors.from_code(word, f"it is {word}", 1, 2, 3)
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert (each.code, each.rank, each.peer, each.sequence) == (word, 1, 2, 3)
            assert str(each) == f"it is {word}" and each.args == (str(each),)
    assert {kind.code for kind in errors.Error.__subclasses__()} == set(words)


def test_the_stubs_tell_of_everything():
    import ast
    import inspect

    import tutti
    tree = ast.parse((ROOT / "bindings/python/tutti/__init__.pyi").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def told(body):
        return {node.name: [a.arg for a in node.args.args] for node in body
                if isinstance(node, ast.FunctionDef)}

    def real(owner):
        return {name: [p.name for p in inspect.signature(value).parameters.values()
                       if p.kind is p.POSITIONAL_OR_KEYWORD]
                for name, value in vars(owner).items()
                if inspect.isfunction(value) and not name.startswith("_")}

    assert told(tree.body) == real(tutti)
    methods = {**real(tutti.Group.__mro__[1]), **real(tutti.Group)}
    stubs = told(classes["Group"].body)
    assert methods.items() <= stubs.items()
    public = {name for name in vars(tutti) if name[0].isupper()}
    assert public <= classes.keys() | set(tutti.errors.__all__)


def test_the_latency_bench_prints_its_rows():
    done = jobs.tutti_run(2, sys.executable, str(ROOT / "bench/python_latency.py"), "--calls", "50",
                          "--sizes", "8,65536", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ranks"] == 2 and [row["bytes"] for row in report["rows"]] == [8, 65536]
    assert all(value > 0 for row in report["rows"] for value in row.values())
