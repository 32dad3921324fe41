#!/usr/bin/env bash
# Train, and run tests of the core, where there are no plug-ins.
#
#     tests/machines/core.sh [TEST...]     such as: tests/config tests/trainer
#
# The files of the checkout without `jaxtrain/plugins` and `tests/plugins` are copied
# into a folder, which is thrown away afterwards. There a short run reaches its end, all
# test files must be collected, and the TESTs, or those below, are run, but for tests
# that are marked `plugins`. `make .venv/.installed` comes before.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python=$PWD/.venv/bin/python
tests=("$@")
if ((! $#)); then
  tests=(
    tests/config
    tests/checkpoints/test_store.py
    tests/data/test_arrays.py
    tests/data/test_order.py
    tests/models/test_model_state.py
    tests/parallel/test_mesh.py
    tests/project/test_plugins.py
    tests/records/test_writers.py
    tests/trainer/test_start.py
    tests/tasks/test_tasks.py
    tests/training/test_optimizers.py
    tests/training/test_step.py
  )
fi

git ls-files -z --cached --others --exclude-standard -- \
  ':!jaxtrain/plugins' ':!tests/plugins' > "$place/files"
mkdir "$place/jaxtrain"
tar --create --null --files-from="$place/files" | tar --extract --directory "$place/jaxtrain"
cd "$place/jaxtrain"

# The finder of an editable installation would find the plug-ins of the checkout.
mkdir "$place/site"
cat > "$place/site/sitecustomize.py" << 'END'
import sys

sys.meta_path[:] = [
    finder
    for finder in sys.meta_path
    if not getattr(finder, "__module__", "").startswith("__editable__")
]
END
export PYTHONPATH=$place/site
"$python" -c '
import importlib.util, jaxtrain
assert importlib.util.find_spec("jaxtrain.plugins") is None, jaxtrain.__file__
'

"$python" main.py --config configs/digits.py --workdir "$place/run" \
  --train.epochs 2 --optimizer.warmup-epochs 1

marks="not plugins and not slow and not exhaustive and not gpu_compiler"
pytest=("$python" -m pytest -q -p no:cacheprovider)
"${pytest[@]}" --collect-only -m "not plugins" tests > "$place/collected" ||
  { tail -n 40 "$place/collected"; exit 1; }
"${pytest[@]}" -n 2 --dist worksteal -m "$marks" "${tests[@]}"
