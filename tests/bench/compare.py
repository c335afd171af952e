"""Says how the outputs of two sides differ; nothing where they are the same."""

import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb
from deltalake import DeltaTable


# Both sides round; one computes in floats.
SAME = "abs(ours.{0} - theirs.{0}) <= 1e-9 * (1 + abs(ours.{0})) OR ours.{0} IS NULL AND theirs.{0} IS NULL"
# Numbers in texts are in floats, too. Quantities have columns of their own; ratios are compared as numbers.
NUMBERS = """'"(AllocatedRatio|UsageQuantity)":[0-9.]+', '', 'g'"""
# A part's ratio follows from its cost, so the smaller the cost of the row, the more its last digit changes.
SAME_RATIOS = """
    list_bool_and(list_transform(
        list_zip(regexp_extract_all(ours.{0}, {1}, 1), regexp_extract_all(theirs.{0}, {1}, 1)),
        lambda pair: abs(pair[1]::DOUBLE - pair[2]::DOUBLE) <= 1e-9 + 4e-12 / nullif(ours.EffectiveCost, 0)
            OR pair[1] = pair[2]
    ))
""".format("AllocatedMethodDetails", """'"AllocatedRatio":([0-9.]+)'""")
KEYS = {
    "cost_allocation": (
        *("BillingAccountId", "ChargePeriodStart", "x_RowKind", "SubAccountId", "ResourceId", "x_PodUid"),
    ),
    "hours": ("organization_id", "hour"),
}


def written(ours: Path, theirs: Path) -> str | None:
    """Compares the rows of two lakes, of hours in the columns that the other has: texts byte by byte, numbers
    (also in texts) except for the last digits of floats."""
    database = duckdb.connect()
    for table, keys in KEYS.items():
        for name, lake in (("ours", ours), ("theirs", theirs)):
            read = f"read_parquet('{lake}/{table}/**/*.parquet', hive_partitioning = false)"
            database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM {read}")
        columns = {column: kind for column, kind, *_ in database.execute("DESCRIBE theirs").fetchall()}
        all_columns = [column for column, *_ in database.execute("DESCRIBE ours").fetchall()]
        if table == "cost_allocation" and list(columns) != all_columns:
            return f"other columns: {set(columns) ^ set(all_columns)}"
        same = (
            SAME.format(f'"{column}"') if kind.startswith("DECIMAL")
            else f"""regexp_replace(ours."{column}"::VARCHAR, {NUMBERS})
                IS NOT DISTINCT FROM regexp_replace(theirs."{column}"::VARCHAR, {NUMBERS})"""
            + (f" AND ({SAME_RATIOS} OR ours.{column} IS NULL)" if column == "AllocatedMethodDetails" else "")
            for column, kind in columns.items()
        )
        checks = ", ".join(f"count(*) FILTER (WHERE NOT coalesce({check}, false))" for check in same)
        joined = " AND ".join(f'ours."{key}" IS NOT DISTINCT FROM theirs."{key}"' for key in keys)
        sides = "(SELECT count(*) FROM ours), (SELECT count(*) FROM theirs), count(*)"
        found = database.execute(f"SELECT {sides}, {checks} FROM ours JOIN theirs ON {joined}").fetchone()
        rows, different = found[:3], dict(zip(columns, found[3:], strict=True))
        wrong = {column: count for column, count in different.items() if count}
        if not rows[0] or len(set(rows)) > 1 or wrong:
            counts = f"{rows[0]} rows of ours, {rows[1]} of theirs, {rows[2]} joined"
            return f"{table}: {counts}; different: {wrong}"
    counts = [len(list((lake / "cost_allocation").rglob("*.parquet"))) for lake in (ours, theirs)]
    return None if counts[0] == counts[1] else f"{counts[0]} files of ours, {counts[1]} of theirs"


def rows(lake: Path) -> int:
    """Rows of cost_allocation in the files that its log names."""
    files = live(lake, "cost_allocation")
    return duckdb.sql(f"SELECT count(*) FROM read_parquet({files})").fetchone()[0]


def live(lake: Path, table: str) -> list[str]:
    """The files that a table's log names."""
    return DeltaTable(str(lake / table)).file_uris()


def allocations(ours: Path, theirs: Path, last_hour: str) -> str | None:
    """Compares all rows of cost_allocation of two lakes, up to an hour such as 2026-11-20T22."""
    counts = []
    # Rows wait on disk, and one hour of them is compared at a time: there are millions.
    with tempfile.TemporaryDirectory() as folder, duckdb.connect(f"{folder}/rows.duckdb") as database:
        database.execute("SET memory_limit = '4GB'")
        database.execute("SET TimeZone = 'UTC'")
        for name, lake in (("ours", ours), ("theirs", theirs)):
            database.execute(
                f"""
                CREATE TABLE {name} AS SELECT * FROM read_parquet({live(lake, "cost_allocation")})
                WHERE ChargePeriodStart <= TIMESTAMPTZ '{last_hour}:00:00Z'
                """
            )
        hours = "SELECT ChargePeriodStart FROM theirs UNION SELECT ChargePeriodStart FROM ours"
        for hour in database.execute(hours).fetchall():
            mine, other = (f"(FROM {name} WHERE ChargePeriodStart = ?)" for name in ("ours", "theirs"))
            counted = f"""
                SELECT (SELECT count(*) FROM {other}),
                    (SELECT count(*) FROM ({other} EXCEPT ALL {mine})),
                    (SELECT count(*) FROM ({mine} EXCEPT ALL {other}))
            """
            counts.append(database.execute(counted, [*hour] * 5).fetchone())
    everything, missing, more = map(sum, zip(*counts, strict=True)) if counts else (0, 0, 0)
    if everything and not missing and not more:
        return None
    return f"of {everything} rows {missing} are not ours, and {more} of ours are not theirs"


def bill(reports: list[dict], lines: int, theirs: Path) -> str | None:
    """Compares what imports of a bill report with the groups of the other side: their number, and the sums of
    their billed and effective costs, which are exact."""
    sums = f"SELECT count(*), sum(billed), sum(effective) FROM read_parquet('{theirs}')"
    found = duckdb.sql(sums).fetchone()
    for report in reports:
        of_invoices = (
            sum(Decimal(invoice[cost]) for invoice in report["invoices"])
            for cost in ("billed_cost", "effective_cost")
        )
        ours = (report["sets"], *of_invoices)
        if report["lines"] != lines or ours != found:
            return f"{report['lines']} of {lines} lines; ours {shown(ours)}, theirs {shown(found)}"
    return None


def shown(groups: tuple) -> str:
    """A number of groups and their costs."""
    count, billed, effective = groups
    return f"{count} groups, billed {billed}, effective {effective}"
