"""Says how the outputs of two sides differ; nothing where they are the same."""

from pathlib import Path

import duckdb

# A peer computes in floats, and its thousands of additions lose some of their 15 digits.
TOLERANCE = 1e-9

# ListCost is what a pod's share of its node costs at the node's price, no matter who pays.
OURS = """
    SELECT BillingAccountId AS organization, x_PodUid AS pod,
        epoch_us(ChargePeriodStart) // 3600000000 AS hour, CAST(sum(ListCost) AS DOUBLE) AS cost
    FROM read_parquet('{lake}/cost_allocation/**/*.parquet')
    WHERE x_RowKind = 'pod_node' AND x_Unpriced IS DISTINCT FROM 'unknown_node'
    GROUP BY ALL
"""


def pod_costs(lake: Path, costs: Path) -> str | None:
    """Compares a lake with what a peer says each pod cost in each hour."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    found = database.execute(
        f"""
        SELECT count(*), count(*) FILTER (WHERE ours.cost IS NULL),
            count(*) FILTER (WHERE theirs.cost IS NULL),
            count(*) FILTER (WHERE abs(ours.cost - theirs.cost) > {TOLERANCE} * (1 + abs(ours.cost)))
        FROM ({OURS.format(lake=lake)}) AS ours
            FULL JOIN read_parquet('{costs}') AS theirs USING (organization, pod, hour)
        """
    ).fetchone()
    everything, not_ours, not_theirs, different = found
    if everything and not (not_ours or not_theirs or different):
        return None
    return (
        f"of {everything} pod-hours {not_ours} are not ours, {not_theirs} are not theirs, and {different} "
        f"cost something else"
    )


def tables(ours: Path, theirs: Path) -> str | None:
    """Compares all rows of all tables, file by file."""
    database = duckdb.connect()
    files = sorted(path.relative_to(theirs) for path in theirs.rglob("*.parquet"))
    if not files:
        return "no file was written"
    for path in files:
        left, right = (f"SELECT * FROM read_parquet('{root / path}')" for root in (ours, theirs))
        missing = f"SELECT count(*) FROM ({left} EXCEPT ALL {right})"
        if database.execute(missing).fetchone() != (0,):
            return f"rows of {path} differ"
    return None
