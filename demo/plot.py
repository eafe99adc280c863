"""The picture of the messages in each entity partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kafkabus_spark.reports import HOT_OVER

if TYPE_CHECKING:
    from demo.analysis import Partition

_COLD, _HOT, _INK = "#7a93ac", "#d1495b", "#333333"


def draw(partitions: list[Partition], path: Path) -> None:
    """Draw messages, bytes and mean departure delay of each partition into a PNG.

    Args:
        partitions: All partitions of the entity.
        path: The file of the picture; its folder is created if it is missing.
    """
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, panels = plt.subplots(3, 1, figsize=(9, 7.6), sharex=True, height_ratios=(1.7, 1, 1), layout="constrained")
    numbers = [partition.number for partition in partitions]
    colours = [_HOT if partition.hot else _COLD for partition in partitions]
    values = (
        [partition.messages for partition in partitions],
        [partition.size / 1e6 for partition in partitions],
        [partition.mean_delay or 0.0 for partition in partitions],
    )
    titles = ("messages", "MB of bodies", "mean departure delay, minutes")
    for panel, heights, title in zip(panels, values, titles, strict=True):
        panel.bar(numbers, heights, color=colours, width=0.75)
        panel.set_title(title, loc="left", color=_INK, fontsize=11)
        panel.yaxis.set_major_locator(MaxNLocator(4))
        panel.yaxis.set_major_formatter(FuncFormatter(_readable))
        panel.grid(axis="y", color="#e3e3e3", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.set_xlim(-0.6, len(partitions) - 0.4)
        panel.tick_params(axis="x", length=0)
        panel.axhline(0, color=_INK, linewidth=0.8)
        panel.spines["bottom"].set_visible(False)
    _label_keys(panels[0], partitions)
    panels[-1].set_xticks(numbers)
    panels[-1].set_xlabel("entity partition")
    figure.suptitle(
        f"{sum(partition.messages for partition in partitions):,} flights in the queue “flights”, by carrier",
        color=_INK,
        fontsize=13,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _label_keys(panel: Any, partitions: list[Partition]) -> None:
    """Write the carriers over the bars, and draw the limit above which a partition is hot."""
    total = sum(partition.messages for partition in partitions)
    bound = HOT_OVER * total / len(partitions)
    panel.axhline(bound, color=_HOT, linewidth=1, linestyle=(0, (4, 3)))
    panel.set_title(f"red: hot, over {HOT_OVER:g} times the mean (dashed)", loc="right", color=_HOT, fontsize=10)
    panel.margins(y=0.22)
    for partition in partitions:
        if partition.messages:
            panel.annotate(
                "\n".join(str(key) for key, _ in partition.keys),
                (partition.number, partition.messages),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                color=_HOT if partition.hot else _INK,
                fontsize=9,
                fontweight="bold" if partition.hot else "normal",
            )


def _readable(value: float, _: int | None) -> str:
    return f"{value:,.10g}"
