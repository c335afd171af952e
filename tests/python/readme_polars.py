"""The README's query for Polars; `checks.py` runs it."""

import polars as pl


def cost_by_namespace(lake: str) -> pl.DataFrame:
    """Cost by namespace and day, dearest first."""
    return (
        pl.scan_delta(f"{lake}/cost_allocation")
        .group_by("date", "x_Namespace")
        .agg(pl.col("EffectiveCost").sum(), pl.col("x_GpuHours").sum())
        .sort("EffectiveCost", descending=True)
        .collect()
    )
