"""Which variables reach live workers."""

from __future__ import annotations

import pytest

from rpcinspect.replayer.workers.environment import worker_environment

SET = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_LAUNCH_BLOCKING": "1",
    "CUDA_VISIBLE_DEVICES": "1",
    "NVIDIA_TF32_OVERRIDE": "0",
    "PYTHONPATH": "/elsewhere",
    "MASTER_ADDR": "10.0.0.1",
}


def test_it_is_a_list_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    found = worker_environment(3)
    assert found["OMP_NUM_THREADS"] == "3"
    assert not {"PYTHONPATH", "HOME", "MASTER_ADDR"} & set(found)


@pytest.mark.parametrize("cuda", [False, True])
def test_what_the_user_sets_for_torch_reaches_them(cuda: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --device cuda they see no GPU, whatever is set."""
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    found = worker_environment(1, cuda=cuda)
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING"):
        assert found[name] == SET[name]
    assert found["CUDA_VISIBLE_DEVICES"] == ("1" if cuda else "")
    assert ("NVIDIA_TF32_OVERRIDE" in found) == cuda
