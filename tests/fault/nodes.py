"""What the tests of jobs from several launchers share: two of them, as on two hosts, over loopback."""
import os
import socket

from launching import LIMIT, LaunchTest


class NodesTest(LaunchTest):
    """Two launchers that meet at a port of their own."""

    def setUp(self):
        super().setUp()
        # Bound and not listening: nobody else gets the port, and node 0 can still listen on it.
        self.held = socket.socket()
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.held.bind(("127.0.0.1", 0))
        self.addCleanup(self.held.close)
        self.rendezvous = f"127.0.0.1:{self.held.getsockname()[1]}"
        self.secret = self.write_secret("secret", os.urandom(32), 0o600)

    def write_secret(self, name, content, mode):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def flags(self, node, nodes=2, ranks=2, secret=None, grace="1", join="30"):
        return ["run", "-n", str(ranks), "--nnodes", str(nodes), "--node-rank", str(node),
                "--rendezvous", self.rendezvous, "--secret-file", secret or self.secret,
                "--grace", grace, "--join-timeout", join]

    def finish(self, process):
        out, err = process.communicate(timeout=LIMIT)
        return process.returncode, out, err

    def both(self, program, ranks=(2, 2), more=(), **flags):
        launchers = [self.start(*self.flags(node, ranks=ranks[node], **flags), *more, *program)
                     for node in range(2)]
        return [self.finish(launcher) for launcher in launchers]
