"""Make one JSON file and one Markdown table of what the scripts of `gpu.sh` printed.

    python benchmarks/gpu_table.py LOGS OUT "gpu.sh ..."

LOGS holds, for each script, NAME.out with what it printed and NAME.status with its exit
code and seconds, or with "skipped" and the reason. It exits with 1 if a script failed.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

# What `timeout` and a shell return for a program that was ended.
ENDED = {124: "its time was up", 137: "it was killed"}


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the results that a script printed, one a line."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # It was cut off.
    return [result for result in found if "ratio" in result]


def rows_of_plan(path: Path) -> list[dict[str, Any]]:
    """Return rows of what `plan --check` wrote: its memory, and the bound of a step."""
    plan = json.loads(path.read_text())
    check = plan["check"]
    measured = {
        "plan: memory": (check["planned_bytes"], check["peak_bytes"], "bytes"),
        "plan: step": (plan["step_seconds_bound"], check["step_seconds"], "s a step"),
    }
    return [
        {"name": name, "ratio": a / b, "ours": a, "peer": b, "unit": unit, "spread": []}
        for name, (a, b, unit) in measured.items()
        if a is not None  # Nothing bounds a step on a CPU.
    ]


def rows_of(name: str, logs: Path) -> list[dict[str, Any]]:
    """Return the rows of a script; the last says why there are no more."""
    word, _, rest = (logs / f"{name}.status").read_text().strip().partition(" ")
    if word == "skipped":
        return [{"name": name, "skipped": rest}]
    plan = logs / name / "plan.json"
    rows = rows_of_plan(plan) if plan.exists() else json_lines(logs / f"{name}.out")
    code = int(word)
    if code == 0 and rows:
        # The last line sums up what those before it say.
        return rows[:-1] if "results" in rows[-1] else rows
    said = (logs / f"{name}.out").read_text(errors="replace").strip().splitlines()
    last = next((x for x in reversed(said) if not x.startswith("{")), "no output")
    why = ENDED.get(code, f"exit code {code}: {last}")
    return [*rows, {"name": name, "failed": f"{why}, after {rest} s"}]


def number(value: float) -> str:
    return f"{value:.4g}"


def table_row(row: dict[str, Any]) -> str:
    """Return a line of the Markdown table."""
    for why in ("failed", "skipped"):
        if why in row:
            reason = row[why].replace("|", "/")
            return f"| {row['name']} | {why}: {reason} | | | |"
    spread = ", ".join(map(number, row["spread"]))
    ratio = number(row["ratio"]) + (f" ({spread})" if spread else "")
    ours, peer = number(row["ours"]), number(row["peer"])
    return f"| {row['name']} | {ratio} | {ours} | {peer} | {row['unit']} |"


def main() -> None:
    logs, out, command = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    names = [
        p.stem
        for p in sorted(logs.glob("*.status"), key=lambda p: p.stat().st_mtime_ns)
    ]
    rows = [row for name in names for row in rows_of(name, logs)]
    told = next((row for row in rows if "device" in row), {})
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "command": command,
        "device": told.get("device", "unknown"),
        "versions": told.get("versions", {}),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps({**about, "rows": rows}, indent=1))
    libraries = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    lines = [
        f"{about['device']}, {about['date']}; {libraries}.",
        "",
        f"    {command}",
        "",
        "| what | ratio (quartiles) | ours | peer | unit |",
        "|---|---|---|---|---|",
        *map(table_row, rows),
    ]
    text = "\n".join(lines) + "\n"
    (out / "results.md").write_text(text)
    print(text)
    if any("failed" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
