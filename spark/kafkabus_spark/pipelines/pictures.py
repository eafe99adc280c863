"""Pictures of reports, as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

if TYPE_CHECKING:
    from pyspark.sql import Row

_COLD, _HOT, _INK, _GRID = "#7a93ac", "#d1495b", "#333333", "#e3e3e3"
_KINDS: Final = {
    "completed": _COLD,
    "dead_lettered": _HOT,
    "active": "#edae49",
    "deferred": "#66a182",
    "scheduled": "#8d6a9f",
}
_MOST_REASONS: Final = 12


def draw_partition_history(rows: Sequence[Row], path: Path, title: str, partitions: int | None = None) -> None:
    """Draw how many messages each partition got when; hot periods have a frame.

    Args:
        rows: Rows of ``partition_history``.
        path: The file; its folder is created if it is missing.
        title: The title.
        partitions: The number of partitions; default those in ``rows``.
    """
    times = sorted({row["time"] for row in rows})
    places = {time: place for place, time in enumerate(times)}
    count = partitions or 1 + max((row["partition_id"] for row in rows), default=0)
    cells: list[list[float]] = [[float("nan")] * len(times) for _ in range(count)]
    for row in rows:
        cells[row["partition_id"]][places[row["time"]]] = row["messages"]
    figure, panel = _panel((9.0, 1.8 + 0.25 * count), title)
    colours = LinearSegmentedColormap.from_list("messages", ["#eef2f6", _COLD, "#26405c"])
    image = panel.imshow(cells, aspect="auto", cmap=colours, interpolation="nearest", vmin=0)
    for row in rows:
        if row["hot"]:
            corner = places[row["time"]] - 0.5, row["partition_id"] - 0.5
            panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=_HOT, linewidth=1.2))
    bar = figure.colorbar(image, ax=panel, pad=0.01)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(_readable))
    bar.outline.set_visible(False)
    panel.set_title("messages; red frame: hot", loc="right", color=_HOT, fontsize=10)
    panel.set_ylabel("partition")
    panel.set_yticks(range(count))
    _label_times(panel, times)
    _save(figure, path)


def draw_session_history(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draw the messages of each period, the part of the largest session among them, and the skew.

    Args:
        rows: Rows of ``session_history``.
        path: The file; its folder is created if it is missing.
        title: The title.
    """
    figure, panels = plt.subplots(2, 1, figsize=(9, 5), sharex=True, height_ratios=(1.6, 1), layout="constrained")
    figure.suptitle(title, color=_INK, fontsize=13)
    places = range(len(rows))
    panels[0].bar(places, [row["messages"] for row in rows], color=_COLD, width=0.8)
    panels[0].bar(places, [row["in_largest"] for row in rows], color=_HOT, width=0.8)
    panels[0].set_title("messages; red: of the largest session", loc="left", color=_INK, fontsize=11)
    panels[1].plot(places, [row["skew"] for row in rows], color=_HOT, marker="o", markersize=3)
    panels[1].axhline(1, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    panels[1].set_title("largest session, times the mean of all", loc="left", color=_INK, fontsize=11)
    for panel in panels:
        _open(panel)
        _draw_lines(panel)
    _label_times(panels[1], [row["time"] for row in rows])
    _save(figure, path)


def draw_dead_letters(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draw the number of dead letters of each reason.

    Args:
        rows: Rows of ``dead_letter_report``.
        path: The file; its folder is created if it is missing.
        title: The title.
    """
    shown = list(rows[:_MOST_REASONS])
    figure, panel = _panel((9.0, 1.6 + 0.45 * max(1, len(shown))), title)
    names = [row["reason"] or "(no reason)" for row in shown]
    bars = panel.barh(range(len(shown)), [row["dead_letters"] for row in shown], color=_HOT, height=0.6)
    panel.bar_label(bars, [f"{row['dead_letters']:,}  ({row['share']:.0%})" for row in shown], padding=4, color=_INK)
    panel.set_yticks(range(len(shown)), names)
    panel.invert_yaxis()
    panel.margins(x=0.18)
    panel.xaxis.set_major_formatter(FuncFormatter(_readable))
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.set_xlabel("dead letters")
    _save(figure, path)


def draw_reconciliation(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draw what became of each partition's messages.

    Args:
        rows: Rows of ``reconcile``.
        path: The file; its folder is created if it is missing.
        title: The title.
    """
    figure, panel = _panel((9.0, 4.2), title)
    numbers = [row["partition_id"] for row in rows]
    below = [0] * len(rows)
    for kind, colour in _KINDS.items():
        heights = [row[kind] for row in rows]
        if any(heights):
            label = f"{kind.replace('_', '-')}: {sum(heights):,}"
            panel.bar(numbers, heights, bottom=below, color=colour, width=0.75, label=label)
            below = [low + height for low, height in zip(below, heights, strict=True)]
    panel.legend(frameon=False, loc="upper right")
    panel.set_xticks(numbers)
    panel.set_xlabel("partition")
    panel.set_ylabel("messages")
    _draw_lines(panel)
    _save(figure, path)


def _panel(size: tuple[float, float], title: str) -> tuple[Any, Any]:
    figure, panel = plt.subplots(figsize=size, layout="constrained")
    figure.suptitle(title, color=_INK, fontsize=13)
    _open(panel)
    return figure, panel


def _open(panel: Any) -> None:
    """Leave out the lines above and to the right."""
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _draw_lines(panel: Any) -> None:
    """Draw lines across for some of the numbers."""
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.yaxis.set_major_formatter(FuncFormatter(_readable))
    panel.grid(axis="y", color=_GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def _label_times(panel: Any, times: Sequence[datetime]) -> None:
    """Label some of the periods, with as much of the time as distinguishes them."""
    moments = [time.astimezone(timezone.utc) for time in times]
    step = max(1, len(moments) // 8)
    whole_days = all((moment.hour, moment.minute, moment.second) == (0, 0, 0) for moment in moments)
    pattern = (
        "%d %b %Y" if whole_days else "%d %b %H:%M" if all(moment.second == 0 for moment in moments) else "%H:%M:%S"
    )
    shown = range(0, len(moments), step)
    panel.set_xticks(list(shown), [moments[place].strftime(pattern) for place in shown], rotation=20, ha="right")
    panel.set_xlabel("time (UTC)")


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _readable(value: float, _: int | None) -> str:
    return f"{value:,.10g}"
