"""A network of one's own: a loopback, nothing else, and the user stays who it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.rooted
def test_root_without_rights_and_where_nobody_may(tmp_path: Path) -> None:
    """As in containers: root that may not make a network namespace, then one in which nobody may make any."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    need_own_network()
    look = (sys.executable, "-c", LOOK)
    without = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    done = subprocess.run(
        [*without, *look], check=True, capture_output=True, text=True, env=environment(), timeout=60
    )
    assert json.loads(done.stdout)[::2] == [True, True]
    none = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    forbidden = ("unshare", "--user", "--map-root-user", "sh", "-c", none, "sh", *without, *look)
    done = subprocess.run(
        forbidden, check=False, capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.returncode == 1
    assert "this system allows no more namespaces" in done.stderr or "lets only root" in done.stderr
