#!/bin/sh
# Fills bench/wheels/ with what rpcinspect needs beside torch, as wheels for Python 3.12 on Linux (x86_64), so that
# bench/gpu_check.sh can run on a machine without a network. Installs nothing. Needs pip and a package index.
#
#     bench/gpu_wheels.sh [FOLDER]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/wheels}
python=${PYTHON:-python3}
most=60000000

mkdir -p "$folder"
rm -f "$folder"/*.whl
# What is named here is what pyproject.toml names under `dependencies`; pip finds what they need themselves.
requirements=$("$python" - "$here/../pyproject.toml" <<'END'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)[1]
print("\n".join(re.findall(r'"([^"]+)"', block)))
END
)
printf '%s\n' "$requirements" > "$folder/requirements.txt"
"$python" -m pip download --quiet --disable-pip-version-check --dest "$folder" --python-version 3.12 \
    --implementation cp --only-binary :all: --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 \
    --requirement "$folder/requirements.txt"
bytes=$(cat "$folder"/*.whl | wc -c)
echo "$folder: $(find "$folder" -name '*.whl' | wc -l) wheels, $bytes bytes"
if [ "$bytes" -gt "$most" ]; then
    echo "more than $most bytes" >&2
    exit 1
fi
