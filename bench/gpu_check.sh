#!/bin/sh
# Checks on a machine with a GPU what no CPU can: captures replayed on CUDA, and a job with CUDA tensors and device
# maps (nested and asynchronous calls, remote objects, a module that initialises CUDA when it is imported) that is
# run, captured (uv and cuda_basic over the loopback), decoded and replayed on CUDA and on the CPU.
# From a checkout, in under four minutes; installs nothing. Packages that Python has already win over those in
# bench/wheels/, which bench/gpu_wheels.sh fills where there is a network.
#
#     bench/gpu_check.sh             the check; needs a GPU, PyTorch 2.11 or later with CUDA, Python 3.10 or later
#     bench/gpu_check.sh --dry       the same on the CPU alone, with one of the bundled captures: everything but the GPU
#     PYTHON=/path/to/python bench/gpu_check.sh
#
# Sniffing needs root, or a kernel that gives user namespaces to everybody. Writes its captures and gpu_check.json
# into $OUT, otherwise into a temporary folder. Exit status: 0 all as expected, 1 something differs, 2 can't check.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM

if ! "$python" -c 'import importlib.util as u; raise SystemExit(u.find_spec("torch") is None)'; then
    echo "$python has no PyTorch: set PYTHON" >&2
    exit 2
fi
mkdir "$scratch/packages"
for wheel in "$here"/wheels/*.whl; do
    if [ -e "$wheel" ]; then
        "$python" -m zipfile -e "$wheel" "$scratch/packages"
    fi
done
export RPCINSPECT_LATE_PACKAGES="$scratch/packages"
out=${OUT:-$scratch/out}
mkdir -p "$out"
timeout 235 "$python" -B "$here/gpu_check.py" --out "$out" "$@"
