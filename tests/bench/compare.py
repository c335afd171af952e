"""Says how the outputs of two sides differ; nothing where they are the same."""

from pathlib import Path

import duckdb
from deltalake import DeltaTable

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


def files_and_rows(lake: Path, table: str) -> tuple[int, int]:
    """Files that a table's log names, and their rows."""
    files = live(lake, table)
    return len(files), duckdb.sql(f"SELECT count(*) FROM read_parquet({files})").fetchone()[0]


def live(lake: Path, table: str) -> list[str]:
    """The files that a table's log names."""
    return DeltaTable(str(lake / table)).file_uris()


def allocations(ours: Path, theirs: Path, last_hour: str) -> str | None:
    """Compares all rows of cost_allocation of two lakes, up to an hour such as 2026-11-20T22."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, lake in (("ours", ours), ("theirs", theirs)):
        database.execute(
            f"""
            CREATE TABLE {name} AS SELECT * FROM read_parquet({live(lake, "cost_allocation")})
            WHERE ChargePeriodStart <= TIMESTAMPTZ '{last_hour}:00:00Z'
            """
        )
    everything, missing, more = database.execute(
        """
        SELECT (SELECT count(*) FROM theirs),
            (SELECT count(*) FROM (FROM theirs EXCEPT ALL FROM ours)),
            (SELECT count(*) FROM (FROM ours EXCEPT ALL FROM theirs))
        """
    ).fetchone()
    if everything and not missing and not more:
        return None
    return f"of {everything} rows {missing} are not ours, and {more} of ours are not theirs"


def hourly_sums(events: Path, sums: Path) -> str | None:
    """Compares sums of each pod's use, by the hour in which samples begin, with the events themselves."""
    database = duckdb.connect()
    everything, different = database.execute(
        f"""
        SELECT count(*), count(*) FILTER (WHERE ours.amount IS DISTINCT FROM theirs.amount)
        FROM (
            SELECT pod, time // 3600000000 AS hour, sum(cpu * (interval_end - time)) AS amount
            FROM read_parquet('{events}') WHERE kind = 4 GROUP BY ALL
        ) AS ours FULL JOIN read_csv('{sums}.*', header = false,
            columns = {{'pod': 'VARCHAR', 'hour': 'BIGINT', 'amount': 'HUGEINT'}}) AS theirs
            USING (pod, hour)
        """
    ).fetchone()
    if everything and not different:
        return None
    return f"of {everything} hourly sums {different} differ"
