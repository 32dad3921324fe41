"""The figures of the GPU's programs of all recipes, for the tests to hold.

    make gpu-compiler
    python benchmarks/gpu_baseline.py [--only NAME ...] [--write]

Compiles the step of each recipe for an H100, or eight, and tells what differs from the
accepted figures by more than 1 %. With --write it accepts what it finds.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.plugins.plan import gpu_baseline as baseline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", help="these recipes and no others")
    parser.add_argument("--write", action="store_true", help="accept what is found")
    arguments = parser.parse_args()
    accepted, changed = baseline.read(), 0
    for name in arguments.only or baseline.recipes():
        start = time.monotonic()
        found = baseline.figures(name)
        seconds = time.monotonic() - start
        known = accepted.get(name)
        lines = [f"{name}: new"] if known is None else []
        lines += [] if known is None else baseline.differences(name, found, known)
        changed += bool(lines)
        print(*(lines or [f"{name}: the same"]), f"{seconds:.0f} s", flush=True)
        if arguments.write:
            baseline.write({name: found})
    print(json.dumps({"name": "gpu_baseline", "changed": changed}))


if __name__ == "__main__":
    main()
