"""A History as `history --json` prints it and as a page of the report draws it."""

from typing import Any

from andrea_bench.tracking.series import History, Series


def history_document(history: History, shown: list[Series]) -> dict[str, Any]:
    """Lists of a series run over `commits`; values in its unit. low, high: asv's 99 % interval of the median.
    from_best: the latest value against the best earlier level, 0.5 is 50 % more; null where there is none."""
    return {
        "machine": history.machine,
        "environment": history.environment,
        "commits": history.commits,
        "dates_ms": history.dates_ms,
        "notes": history.notes,
        "series": [
            {
                "benchmark": one.benchmark(),
                "parameters": one.parameters(),
                "type": one.type,
                "unit": one.unit,
                "version": one.version,
                "status": [point.status if point else None for point in one.points],
                "values": one.values(),
                "low": [point.low if point else None for point in one.points],
                "high": [point.high if point else None for point in one.points],
                "steps": [{"commit": s.commit, "before": s.before, "old": s.old, "new": s.new} for s in one.steps],
                "from_best": one.from_best(),
                "state": one.state(history.commits),
            }
            for one in shown
        ],
    }
