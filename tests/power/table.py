"""The stored rows as a Markdown table, beside what they shall reach."""

import math
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

Gates = list[dict[str, Any]]

# By row: the target in words for forty gates, and whether so many are in keeping with it.
TARGETS: dict[str, tuple[str, Callable[[Counter[str], int], bool]]] = {
    "aa-3%": ("at most 1 slower, at least 36 same", lambda c, n: c["slower"] <= 1 and c["same"] >= 0.9 * n),
    "aa-1%": ("at most 1 slower", lambda c, n: c["slower"] <= 1),
    "slow-5%": (
        "found in at least 38, another cell slower in at most 2",
        lambda c, n: c["found"] >= 0.95 * n and c["wrongly slower"] <= 0.05 * n,
    ),
    "slow-3%": (
        "found in at least 30, never same, another cell slower in at most 2",
        lambda c, n: c["found"] >= 0.75 * n and not c["called same"] and c["wrongly slower"] <= 0.05 * n,
    ),
    "bursts": ("at most 1 slower", lambda c, n: c["slower"] <= 1),
    "replay-0%": ("at most 1 % slower", lambda c, n: c["slower"] <= 0.01 * n),
    "replay-5%": ("at least 95 % slower", lambda c, n: c["slower"] >= 0.95 * n),
}


def print_table(rows: Gates) -> None:
    """What is stored, as Markdown."""
    print("| row | allowance | slowdown put in | gates | slower | same | inconclusive | faster | seconds a gate"
          " | target (of 40) | met |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in TARGETS:
        gates = [row for row in rows if row["row"] == name and row["kind"] in ("gate", "replay")]
        if gates:
            print(_replay_line(gates[-1]) if gates[-1]["kind"] == "replay" else _line(name, gates))
    for text in dict.fromkeys(_origin(row) for row in rows):
        print(f"\n{text}")


def _line(name: str, gates: Gates) -> str:
    counts = counted(gates)
    seconds = sorted(gate["seconds"] for gate in gates)
    tenth = seconds[math.ceil(0.9 * len(seconds)) - 1]
    took = f"{median(seconds):.0f} (nine in ten up to {tenth:.0f}, at most {seconds[-1]:.0f})"
    told = " | ".join(str(counts[verdict]) for verdict in ("slower", "same", "inconclusive", "faster"))
    target, met = TARGETS[name]
    yes = ("yes" if met(counts, len(gates)) else "no") + ("" if len(gates) >= 40 else ", so far")
    found = ""
    if gates[0]["injected"]:
        found = f" (found in {counts['found']}, another cell slower in {counts['wrongly slower']})"
    return (
        f"| {name} | {gates[0]['allowance']} | {_injected(gates)} | {len(gates)} | {told} | {took} | "
        f"{target}{found} | {yes} |"
    )


def counted(gates: Gates) -> Counter[str]:
    """Verdicts of the gates; `found`: those in which a slowed cell is called slower; `called same`: in which one, or
    all, is called same; `wrongly slower`: in which a cell is that nothing was put into."""
    counts: Counter[str] = Counter()
    for gate in gates:
        counts[gate["verdict"]] += 1
        slowed = [cell["verdict"] for cell in gate["cells"] if cell["slowed"]]
        counts["found"] += "slower" in slowed
        counts["called same"] += bool(slowed) and (gate["verdict"] == "same" or "same" in slowed)
        counts["wrongly slower"] += any(c["verdict"] == "slower" and not c["slowed"] for c in gate["cells"])
    return counts


def _injected(gates: Gates) -> str:
    """What each check of extra work showed, and what the gates after it did: the median of their ratios."""
    checks: dict[str, Gates] = {}
    for gate in gates:
        checks.setdefault("; ".join(map(_shown, gate["injected"])), []).append(gate)
    if set(checks) == {""}:
        return ""
    return "<br>".join(f"{len(after)} gates: {shown}; they saw {_seen(after)}" for shown, after in checks.items())


def _shown(one: dict[str, Any]) -> str:
    interval = f"{100 * one['low']:.1f} to {100 * one['high']:.1f}"
    return f"{100 * one['slowdown']:.1f} % ({interval}) at seq_len {one['seq_len']}"


def _seen(gates: Gates) -> str:
    ratios: dict[int, list[float]] = {}
    for cell in (cell for gate in gates for cell in gate["cells"] if cell["slowed"]):
        ratios.setdefault(cell["seq_len"], []).append(cell["ratio"])
    return " and ".join(f"{100 * (median(found) - 1):.1f} %" for _, found in sorted(ratios.items()))


def _replay_line(row: dict[str, Any]) -> str:
    counts = Counter(row["counts"])
    told = " | ".join(str(counts[verdict]) for verdict in ("slower", "same", "inconclusive", "faster"))
    target, met = TARGETS[row["row"]]
    yes = "yes" if met(counts, row["gates"]) else "no"
    return f"| {row['row']} | {row['allowance']} | | {row['gates']} | {told} | - | {target} | {yes} |"


def _origin(row: dict[str, Any]) -> str:
    if row["kind"] == "replay":
        times = row["times"]
        where = f"{times['machine']}, {times['date'][:10]}, {times['conditions']}"
        return f"Replayed on {row['date'][:10]} from process times taken on {where}."
    return f"Measured {row['date'][:10]} on {row['machine']}, at commit {row['commit']}."
