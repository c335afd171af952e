#!/usr/bin/env python3
"""Polars doing only the node split: reads events from Parquet, writes the cost of each pod and hour.

usage: node_split_polars.py EVENTS.parquet COSTS.parquet THREADS
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import environment

environment.enter("readers")

# Polars reads it when it is imported.
os.environ["POLARS_MAX_THREADS"] = sys.argv[3]

import polars as pl
from polars import col

HOUR = 3_600_000_000
FOREVER = 2**63 - 1
RESOURCES = ("cpu", "memory", "gpu")
WEIGHTS = {"cpu": 0.9 / 1000, "memory": 0.1 / 2**30, "gpu": 9.0 / 1000}
NODE = ["organization", "cluster", "node"]
POD_HOUR = [*NODE, "pod", "hour"]


def turns(events: pl.LazyFrame, key: list[str], start: int) -> pl.LazyFrame:
    """Events of each object in order, with what came before and after; starts that never ran are left out."""
    before = events.sort(*key, "time", "kind").with_columns(
        next=col("time").shift(-1).over(key),
        was_running=(col("kind").shift(1).over(key) == start).fill_null(value=False),
        last_time=col("time").shift(1).over(key),
        last_kind=col("kind").shift(1).over(key),
        kind_before=col("kind").shift(2).over(key),
    )
    stopped_at_once = (col("last_time") == col("time")) & (col("last_kind") != start)
    ran_before = (col("kind_before") == start).fill_null(value=False)
    never_ran = (stopped_at_once & ~ran_before).fill_null(value=False)
    counts = (col("kind") == start) & ~never_ran
    return before.with_columns(until=col("next").fill_null(FOREVER), counts=counts)


def cut_at_hours(spans: pl.LazyFrame) -> pl.LazyFrame:
    """One row for each hour that a span touches, cut to it."""
    hours = pl.int_ranges(col("since") // HOUR, (col("until") - 1) // HOUR + 1)
    cut = spans.filter(col("since") < col("until")).with_columns(hour=hours).explode("hour")
    return cut.with_columns(
        since=pl.max_horizontal("since", col("hour") * HOUR),
        until=pl.min_horizontal("until", (col("hour") + 1) * HOUR),
    )


def times(spans: pl.LazyFrame) -> list[pl.Expr]:
    """Sums of amounts times microseconds."""
    return [(col(name) * (col("until") - col("since")).cast(pl.Float64)).sum() for name in RESOURCES]


def main() -> None:
    source, target = sys.argv[1:3]
    events = pl.scan_parquet(source)
    end = (events.select(col("time").max()).collect().item() // HOUR + 1) * HOUR
    nodes = turns(events.filter(col("kind").is_in([0, 2])), NODE, 2)
    node_spans = nodes.filter("counts").select(
        *NODE, "until", *RESOURCES, since="time", price=col("hourly_cost").cast(pl.Float64)
    )
    # A node that stops ends its pods.
    stops = nodes.filter((col("kind") == 0) & col("was_running"))
    stops = stops.select(*NODE, stop="time", after=col("time") - 1).sort("after")
    pods = turns(events.filter(col("kind").is_in([1, 3])), ["organization", "pod"], 3)
    pods = pods.filter("counts", col("node").is_not_null()).rename({"time": "since"})
    first_after = {"by": NODE, "strategy": "forward", "check_sortedness": False}
    pods = pods.sort("since").join_asof(stops, left_on="since", right_on="after", **first_after)
    pods = pods.with_columns(until=pl.min_horizontal("until", "stop"))
    together = pods.join(node_spans, on=NODE, suffix="_of_node").with_columns(
        since=pl.max_horizontal("since", "since_of_node"),
        until=pl.min_horizontal("until", "until_of_node", pl.lit(end)),
    )
    on_nodes = cut_at_hours(together.select(*NODE, "pod", *RESOURCES, "since", "until"))
    samples = events.filter(col("kind") == 4).rename({"time": "since", "interval_end": "until"})
    samples = cut_at_hours(samples.select("organization", "pod", *RESOURCES, "since", "until"))
    places = on_nodes.select(*POD_HOUR, place_since="since", place_until="until")
    used = places.join(samples, on=["organization", "pod", "hour"]).with_columns(
        since=pl.max_horizontal("since", "place_since"), until=pl.min_horizontal("until", "place_until")
    )
    used = used.filter(col("since") < col("until"))
    used = used.group_by(POD_HOUR).agg(times(used))
    requested = on_nodes.group_by(POD_HOUR).agg(times(on_nodes))
    allocated = requested.join(used, on=POD_HOUR, how="left", suffix="_used").select(
        *POD_HOUR,
        *(pl.max_horizontal(name, col(f"{name}_used").fill_null(0)).alias(name) for name in RESOURCES),
    )
    hours = cut_at_hours(node_spans.with_columns(until=pl.min_horizontal("until", pl.lit(end))))
    weight = pl.sum_horizontal(col(name) * factor for name, factor in WEIGHTS.items())
    cost = col("price") * (col("until") - col("since")) / 3.6e9 / weight
    costs = hours.filter(weight > 0).group_by(*NODE, "hour").agg(
        (cost * col(name) * factor).sum().alias(f"{name}_cost") for name, factor in WEIGHTS.items()
    )
    sums = allocated.group_by(*NODE, "hour").agg(col(name).sum().alias(f"{name}_sum") for name in RESOURCES)
    shared = allocated.join(sums, on=[*NODE, "hour"]).join(costs, on=[*NODE, "hour"], how="left")
    part = [
        pl.when(col(f"{name}_sum") > 0)
        .then(col(name) / col(f"{name}_sum") * col(f"{name}_cost"))
        .otherwise(0)
        for name in RESOURCES
    ]
    shared = shared.select("organization", "pod", "hour", cost=pl.sum_horizontal(part))
    shared.group_by("organization", "pod", "hour").agg(col("cost").sum()).collect().write_parquet(target)


if __name__ == "__main__":
    main()
