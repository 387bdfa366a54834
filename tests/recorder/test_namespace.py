"""A network of one's own: a loopback, nothing else, and the user stays who it was."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.recorder.recording import environment, need_own_network

LOOK = """
import json, os, socket
from rpcinspect.recorder.namespace import enter_own_network
before = os.getuid(), os.getgid()
enter_own_network()
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
    connected = True
names = [name for _, name in socket.if_nameindex()]
print(json.dumps([before == (os.getuid(), os.getgid()), names, connected]))
"""


def test_a_loopback_and_nothing_else() -> None:
    need_own_network()
    done = subprocess.run(
        [sys.executable, "-c", LOOK], check=True, capture_output=True, env=environment(), timeout=60
    )
    same_user, names, connected = json.loads(done.stdout)
    assert same_user
    assert connected
    assert "lo" in names
    assert not any(name.startswith(("eth", "en", "wl")) for name in names)
