#!/usr/bin/env python3
"""Verifies the closed months of a lake in a local folder. It shares no code with the program.

usage: tests/python/verify_closed.py LAKE

For each organization:

- The manifests form a chain, from month to month, by the digest of each manifest's bytes.
- Each file has the size, the digest and the rows of its manifest. The totals and invoices are those rows'.
- A file has rows of the month itself, or corrections of an earlier closed month.
- The live files of the table are the files of the manifests, and pending corrections for the open month.
- The law: rows of a closed month, with their corrections, add up to the ledger. The sums are over each
  combination of values of all other columns, except the charge class and the billing period.

It prints one line for each organization. Each problem is a line too, and then the exit code is 1.
"""

import environment

environment.enter("readers")

import decimal
import hashlib
import json
import re
import string
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

# Sums of columns of 38 digits are exact.
decimal.getcontext().prec = 80

TABLE, LEDGER = "closed_allocation", "cost_allocation"
KEYS = ["format", "organization_id", "period", "previous", "invoices", "totals", "files", "ledger"]
# Month of the charges, date of the charges, billing period, and the first half of the digest.
FILE = re.compile(r"date=((\d{4}-\d{2})-\d{2})/(\d{4}-\d{2})-([0-9a-f]{32})\.parquet")
MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])\.json")
UNENCODED = frozenset(f"{string.ascii_letters}{string.digits}-_".encode())
OWNER, HOUR, CLASS, INVOICE = "BillingAccountId", "ChargePeriodStart", "ChargeClass", "InvoiceId"
PERIOD = ("BillingPeriodStart", "BillingPeriodEnd")
AMOUNTS = ("BillingCurrency", "BilledCost", "EffectiveCost")
READ = [OWNER, *PERIOD, HOUR, CLASS, INVOICE, *AMOUNTS]


@dataclass
class Chain:
    """The closed months of an organization, and the table files that belong to it."""

    organization: str
    manifests: dict[str, dict] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)


def following(period: str) -> str:
    """The month after a month."""
    year, month = map(int, period.split("-"))
    return f"{year + month // 12:04}-{month % 12 + 1:02}"


def start_of(period: str) -> datetime:
    return datetime.fromisoformat(f"{period}-01").replace(tzinfo=UTC)


def folder_of(organization: str) -> str:
    """The folder of an organization's manifests."""
    return "".join(chr(byte) if byte in UNENCODED else f"={byte:02X}" for byte in organization.encode())


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def live_files(table: Path) -> set[str]:
    """The paths that the Delta log of a table lists; none if there is no table."""
    log = table / "_delta_log"
    live: set[str] = set()
    version = -1
    if (log / "_last_checkpoint").exists():
        version = json.loads((log / "_last_checkpoint").read_text())["version"]
        for part in log.glob(f"{version:020}.checkpoint*.parquet"):
            adds = pq.ParquetFile(part).read(columns=["add.path"]).column("add").to_pylist()
            live |= {unquote(add["path"]) for add in adds if add and add["path"]}
    commits = [path for path in log.glob("*.json") if path.stem.isdigit() and int(path.stem) > version]
    for commit in sorted(commits):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                live.discard(unquote(action["remove"]["path"]))
            if "add" in action:
                live.add(unquote(action["add"]["path"]))
    return live


def totals_of(tables: list[pa.Table]) -> list[dict]:
    """The totals of files by currency, as a manifest has them."""
    sums: dict[str, list] = {}
    for table in tables:
        columns = [table.column(name).to_pylist() for name in AMOUNTS]
        for currency, *costs in zip(*columns, strict=True):
            entry = sums.setdefault(currency, [0, Decimal(0), Decimal(0)])
            entry[:] = [total + more for total, more in zip(entry, (1, *costs), strict=True)]
    names = ("currency", "rows", "billed_cost", "effective_cost")
    entries = [(key, rows, f"{billed:.12f}", f"{cost:.12f}") for key, (rows, billed, cost) in sums.items()]
    return [dict(zip(names, entry, strict=True)) for entry in sorted(entries)]


def manifest_of(content: bytes) -> dict | None:
    """Parses a manifest; `None` if it does not have the form of one."""
    try:
        text = content.decode()
        manifest = json.loads(text)
        ledger = manifest["ledger"]
        is_form = list(manifest) == KEYS and manifest["format"] == 1
        is_form &= all(list(file) == ["path", "bytes", "sha256", "rows"] for file in manifest["files"])
        is_form &= all(re.fullmatch("[0-9a-f]{64}", digest) is not None for digest in ledger.values())
        is_form &= list(ledger) == sorted(ledger)
        # Pretty-printed JSON has one form, so no byte is free.
        is_form &= json.dumps(manifest, indent=2, ensure_ascii=False) + "\n" == text
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest if is_form else None


class Verifier:
    """Reads a lake and collects its problems."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.problems: list[str] = []
        self.live = live_files(lake / TABLE)
        self.ledger = live_files(lake / LEDGER)

    def expect(self, holds: bool, problem: str) -> bool:
        if not holds:
            self.problems.append(problem)
        return holds

    def chain(self, folder: Path) -> Chain | None:
        """Reads the manifests of one folder; `None` if there is none, or one cannot be read."""
        chain, previous = None, None
        for path in sorted(folder.iterdir()):
            name, content = f"closed/{folder.name}/{path.name}", path.read_bytes()
            manifest = manifest_of(content) if MONTH.fullmatch(path.name) else None
            if manifest is None:
                self.problems.append(f"{name} does not have the form of a manifest")
                return None
            organization = manifest["organization_id"]
            self.expect(folder_of(organization) == folder.name, f"{name} is of organization {organization!r}")
            self.expect(manifest["period"] == path.stem, f"{name} is of {manifest['period']}")
            link = manifest["previous"]
            changed = " or ".join(sorted({f"{each['period']}.json" for each in (link, previous) if each}))
            problem = f"{name} follows {link}, not {previous}: {changed} was changed, deleted or added"
            self.expect(link == previous, problem)
            previous = {"period": path.stem, "sha256": hashlib.sha256(content).hexdigest()}
            chain = chain or Chain(organization)
            chain.manifests[path.stem] = manifest
        return chain

    def rows(self, path: str, chain: Chain, period: str, own: bool) -> pa.Table | None:
        """Reads a file of a billing period, and checks its rows; `None` if they cannot be read.

        With `own`, the file may have rows of the period itself, and not only corrections.
        """
        name, parts = f"{TABLE}/{path}", FILE.fullmatch(path)
        try:
            table = pq.ParquetFile(self.lake / TABLE / path).read(columns=READ)
        except (OSError, pa.ArrowException) as error:
            self.problems.append(f"{name} cannot be read: {error}")
            return None
        values = {column: set(table.column(column).unique().to_pylist()) for column in READ}
        self.expect(values[OWNER] == {chain.organization}, f"{name} has rows of {values[OWNER]}")
        bounds = [{start_of(period)}, {start_of(following(period))}]
        in_period = parts[3] == period and [values[column] for column in PERIOD] == bounds
        self.expect(in_period, f"{name} is not of billing period {period} alone")
        dates = {f"{hour:%Y-%m-%d}" for hour in values[HOUR]}
        self.expect(dates == {parts[1]}, f"{name} has rows of {sorted(dates)}")
        if not own or parts[2] != period:
            is_closed = parts[2] in chain.manifests and parts[2] < period
            self.expect(is_closed, f"{name} corrects {parts[2]}, which is not closed before {period}")
            self.expect(values[CLASS] == {"Correction"}, f"{name} has rows that are not corrections")
        return table

    def is_intact(self, path: str, size: int | None, sha256: str | None) -> bool:
        """Compares the bytes of a file with its manifest, if there is one, and with its name."""
        name, file, parts = f"{TABLE}/{path}", self.lake / TABLE / path, FILE.fullmatch(path)
        if parts is None or not file.is_file():
            return self.expect(False, f"{name} is missing" if parts else f"{name} is not a file of ours")
        found, found_size = digest_of(file), file.stat().st_size
        is_same = found[:32] == parts[4] and found == (sha256 or found) and found_size == (size or found_size)
        return self.expect(is_same, f"{name} was changed: {found_size} bytes with the digest {found}")

    def closed_files(self, chain: Chain) -> None:
        """Checks the files of all manifests of an organization."""
        for period, manifest in chain.manifests.items():
            name = f"closed/{folder_of(chain.organization)}/{period}.json"
            paths = [file["path"] for file in manifest["files"]]
            self.expect(paths == sorted(set(paths)), f"{name} does not list its files in order")
            tables, invoices = [], set()
            for path, size, sha256, rows in (file.values() for file in manifest["files"]):
                self.expect(path not in chain.files, f"{name} lists {path}, as another manifest does")
                chain.files.append(path)
                self.expect(path in self.live, f"{TABLE}/{path} is in {name}, and not live in the table")
                is_intact = self.is_intact(path, size, sha256)
                table = self.rows(path, chain, period, own=True) if is_intact else None
                if table is None:
                    continue
                found = table.num_rows
                self.expect(found == rows, f"{TABLE}/{path} has {found} rows, and {rows} in {name}")
                tables.append(table)
                if path.startswith(f"date={period}-"):
                    invoices |= set(table.column(INVOICE).unique().to_pylist())
            if len(tables) == len(paths):
                totals, found = totals_of(tables), sorted(invoices - {None})
                self.expect(totals == manifest["totals"], f"{name}: the totals of its files are {totals}")
                self.expect(found == manifest["invoices"], f"{name}: the invoices of its files are {found}")

    def pending_files(self, chains: dict[str, Chain]) -> None:
        """Checks the live files that no manifest lists: they are corrections for the open month."""
        for path in sorted(self.live - {path for chain in chains.values() for path in chain.files}):
            if not self.is_intact(path, None, None):
                continue
            rows = pq.ParquetFile(self.lake / TABLE / path).read(columns=[OWNER])
            owners = rows.column(OWNER).unique().to_pylist()
            chain = chains.get(owners[0]) if len(owners) == 1 else None
            if chain is None:
                self.problems.append(f"{TABLE}/{path} is in no manifest, and has rows of {owners}")
                continue
            chain.pending.append(path)
            self.rows(path, chain, following(max(chain.manifests)), own=False)

    def law(self, chain: Chain) -> None:
        """Compares the closed months of an organization with the ledger."""
        connection = duckdb.connect()
        ledger = [path for path in self.ledger if path.removeprefix("date=")[:7] in chain.manifests]
        parts, types = [], {}
        for table, paths in ((TABLE, [*chain.files, *chain.pending]), (LEDGER, ledger)):
            if not paths:
                continue
            files = [str(self.lake / table / path) for path in paths]
            rows = connection.read_parquet(files, union_by_name=True, hive_partitioning=False)
            rows.create_view(table)
            types |= dict(zip(rows.columns, map(str, rows.types), strict=True))
            parts.append(f"SELECT *, {table == LEDGER} AS is_ledger FROM {table} WHERE {OWNER} = $owner")
        if not parts:
            return
        decimals = [name for name, kind in types.items() if kind.startswith("DECIMAL")]
        # Unit prices and ratios do not add up.
        added = [name for name in decimals if not name.endswith(("UnitPrice", "Ratio"))]
        keys = ", ".join(f'"{name}"' for name in types if name not in (*added, *PERIOD, CLASS))
        # Null counts as 0.
        sums = [f'sum(CASE WHEN is_ledger THEN "{name}" ELSE -"{name}" END)' for name in added]
        differ = " OR ".join(f"{total} <> 0" for total in sums)
        query = f"""
            SELECT strftime({HOUR}, '%Y-%m-%dT%H'), x_RowKind, ResourceId, x_PodUid
            FROM ({" UNION ALL BY NAME ".join(parts)}) GROUP BY {keys} HAVING {differ} ORDER BY ALL
        """
        different = connection.execute(query, {"owner": chain.organization}).fetchall()
        if different:
            self.problems.append(
                f"{chain.organization}: {len(different)} sums of closed months differ from the ledger, "
                f"such as of {different[0]}: run prorata close"
            )


def main() -> None:
    lake = environment.lake_argument()
    verifier = Verifier(lake)
    chains: dict[str, Chain] = {}
    for folder in sorted((lake / "closed").glob("*")):
        if (chain := verifier.chain(folder)) is not None:
            chains[chain.organization] = chain
    for chain in chains.values():
        verifier.closed_files(chain)
    verifier.pending_files(chains)
    is_intact = not verifier.problems
    for organization, chain in chains.items():
        # A damaged file has no sums.
        if is_intact:
            verifier.law(chain)
        print(
            f"{organization}: {len(chain.manifests)} closed months up to {max(chain.manifests)}, "
            f"{len(chain.files)} files, {len(chain.pending)} pending, "
            f"{'compared' if is_intact else 'not compared'} with the ledger"
        )
    print("\n".join([*verifier.problems, f"{len(chains)} organizations, {len(verifier.problems)} problems"]))
    sys.exit(1 if verifier.problems else 0)


if __name__ == "__main__":
    main()
