"""Texts that break pages, tables and markup, and a Run full of them.

Cases C32, RP03 and their kin: closing tags in any case, quotes, bars, line ends, dots, brackets, formulas, markup."""

from pathlib import Path
from typing import Any

from made_up import changed_run

NASTY = [
    "</SCRIPT><img src=x onerror=alert(1)>", "</script ><svg/onload=alert(2)>", "<!--<script>", 'a"b', "a'b\"c",
    "a|b\n`c`", "gpu.name[0]", "$x$", "attn<64,true>", "[red]x[/]", "&lt;b&gt;", "]]>", "\u2028", "${alert(3)}",
    "{{x}}", "*_~#@someone", "Zürich-β", "x" * 300,
]  # fmt: skip


def hostile_run(folder: Path) -> Path:
    """A Run in which every free text is one of NASTY."""
    names = iter(NASTY * 100)

    def change(record: dict[str, Any]) -> None:
        if record["kernel"] in ("per_head_batched", "fused_each", "sdpa"):
            record["kernel"] = next(names)
        if record["status"] != "ok":
            record["reason"] = next(names)
        record["selected_backend"] = next(names)
        record["validity"] = {"verdict": "suspect", "reasons": [next(names)]}

    everywhere = {"host": NASTY[0], "device": NASTY[1], "libraries": {NASTY[2]: NASTY[3]}, "cpu": {"model": NASTY[5]}}
    return changed_run(folder, change, everywhere)
