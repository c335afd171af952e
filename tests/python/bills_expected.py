"""What the tables must have of a bill: RULES.md, section 13, for nodes that run for full hours and do not
change, and the formats of three providers. It shares no code with the program.

Amounts are whole numbers of 10^-12, and hours are counted from 1970.
"""

import calendar
import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

ATOMS = 10**12
# Weights of a vCPU and of a GiB.
CPU, GIB = Fraction("0.9"), Fraction("0.1")

# By (hour, node, pod, commitment, list price): billed and effective cost. A pod of None is the idle row.
Rows = dict[tuple[int, str, str | None, str, int], tuple[Fraction, Fraction]]


class Line(NamedTuple):
    """A line of a bill, after rounding."""

    invoice: str
    key: str
    begin: int
    end: int
    billed: int
    effective: int
    # Hours that a machine is billed for; 0 if the line bills anything else.
    hours: int = 0
    price: int = 0
    commitment: str = ""
    # Whether the line is a fee of a commitment, or what is unused of it.
    is_of_commitment: bool = False


def atoms(text: str) -> int:
    """Rounds half to even, as the importer does."""
    return round(Fraction(text or 0) * ATOMS)


def hour_of(text: str) -> int:
    """The hour of a time of any of the formats, all of which are full hours."""
    time = datetime.fromisoformat(text.replace(" +0000 UTC", "+00:00"))
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()) // 3600


def end_of_month(hour: int) -> int:
    begin = datetime.fromtimestamp(hour * 3600, UTC).replace(day=1, hour=0)
    return hour_of(begin.isoformat()) + calendar.monthrange(begin.year, begin.month)[1] * 24


def read_aws(row: dict[str, str]) -> Iterator[Line]:
    kind, resource = row["lineItem/LineItemType"], row["lineItem/ResourceId"]
    if kind == "SavingsPlanNegation":
        return
    arn = row["savingsPlan/SavingsPlanArn"] or row["reservation/ReservationARN"]
    begin, end = hour_of(row["lineItem/UsageStartDate"]), hour_of(row["lineItem/UsageEndDate"])
    cost = atoms(row["lineItem/UnblendedCost"])
    line = Line(
        row["bill/InvoiceId"],
        resource.split("/")[-1] if resource.startswith("arn:aws:ec2:") else resource,
        begin,
        end if end - begin <= 32 * 24 else end_of_month(begin),
        cost,
        cost,
        commitment=arn.split("/")[-1],
    )
    is_use = kind in ("Usage", "DiscountedUsage", "SavingsPlanCoveredUsage")
    if is_use and line.key.startswith("i-") and row["pricing/unit"] == "Hrs":
        price = atoms(row["pricing/publicOnDemandRate"])
        line = line._replace(hours=atoms(row["lineItem/UsageAmount"]), price=price)
    if kind == "DiscountedUsage":
        yield line._replace(effective=atoms(row["reservation/EffectiveCost"]))
    elif kind == "SavingsPlanCoveredUsage":
        yield line._replace(billed=0, effective=atoms(row["savingsPlan/SavingsPlanEffectiveCost"]))
    elif kind in ("RIFee", "SavingsPlanRecurringFee", "SavingsPlanUpfrontFee"):
        yield line._replace(effective=0, is_of_commitment=True)
        unused = atoms(row["reservation/UnusedRecurringFee"])
        if kind == "SavingsPlanRecurringFee":
            total, used = row["savingsPlan/TotalCommitmentToDate"], row["savingsPlan/UsedCommitment"]
            unused = atoms(total) - atoms(used)
        yield line._replace(billed=0, effective=unused, is_of_commitment=True)
    else:
        yield line


def read_azure(row: dict[str, str]) -> Iterator[Line]:
    key = "/" + row["ResourceId"].lower().lstrip("/")
    units = {"1 Hour": 1, "100 Hours": 100}.get(row["UnitOfMeasure"], 0)
    hours = atoms(row["Quantity"]) * units if "/virtualmachines/" in key else 0
    begin = hour_of(row["Date"])
    cost = atoms(row["CostInBillingCurrency"])
    price = atoms(row["PayGPrice"]) // units if hours else 0
    yield Line(row["invoiceId"], key, begin, begin + 24, cost, cost, hours, price)


def read_gcp(row: dict[str, str]) -> Iterator[Line]:
    name, global_name = row["resource.name"].strip(), row["resource.global_name"].strip()
    if "/instances/" in name and "//compute.googleapis.com/" in global_name:
        key = f"{row['location.zone']}/{name.split('/')[-1]}"
    elif "/disks/" in global_name:
        place = row["location.zone"] or global_name.split("/")[6]
        key = f"{place}/disks/{name.split('/')[-1]}"
    else:
        key = global_name or name
    begin, end = hour_of(row["usage_start_time"]), hour_of(row["usage_end_time"])
    for cost in google_costs(row):
        yield Line(row["invoice.month"], key, begin, end, atoms(cost), atoms(cost))


def google_costs(row: dict[str, str]) -> list[str]:
    """The cost of a line and its credits."""
    credits = json.loads(row["credits"].replace("'", '"'), parse_float=Decimal)
    return [row["cost"], *(str(credit["amount"]) for credit in credits)]


READERS: dict[str, Callable[[dict[str, str]], Iterator[Line]]] = {
    "aws": read_aws,
    "azure": read_azure,
    "gcp": read_gcp,
}
COSTS: dict[str, Callable[[dict[str, str]], list[str]]] = {
    "aws": lambda row: [row["lineItem/UnblendedCost"]],
    "azure": lambda row: [row["CostInBillingCurrency"]],
    "gcp": google_costs,
}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_bill(provider: str, path: Path) -> tuple[list[Line], Fraction]:
    """The lines of a bill, and the sum of its costs without any rounding."""
    rows = rows_of(path)
    total = sum((Fraction(cost) for row in rows for cost in COSTS[provider](row)), Fraction(0))
    return [line for row in rows for line in READERS[provider](row)], total


def invoices(lines: list[Line]) -> dict[str, tuple[int, int]]:
    """Billed and effective cost of each invoice; of charges without one under an empty name."""
    sums: dict[str, tuple[int, int]] = {}
    for line in lines:
        billed, effective = sums.get(line.invoice, (0, 0))
        sums[line.invoice] = (billed + line.billed, effective + line.effective)
    return sums


def parts(line: Line, running: set[int]) -> Iterator[tuple[int, int, int]]:
    """The parts of a line by hour, in order. A machine's line is divided by the time that the machine ran."""
    left = [line.billed, line.effective]
    hours = line.hours
    for hour in range(line.begin, line.end):
        if hour + 1 == line.end:
            costs = left
        else:
            time, of = 1, line.end - line.begin
            if line.hours:
                time, of = min(ATOMS if hour in running else 0, hours), line.hours
                hours -= time
            costs = [round(Fraction(cost * time, of)) for cost in (line.billed, line.effective)]
        left = [before - cost for before, cost in zip(left, costs, strict=True)]
        yield hour, *costs


class World:
    """The nodes and pods of a provider, by hour."""

    def __init__(self, folder: Path):
        self.keys: dict[str, str] = json.loads((folder / "keys.json").read_text())
        # The hours in which a machine runs, by its key.
        self.running: dict[str, set[int]] = defaultdict(set)
        for row in rows_of(folder / "nodes.csv"):
            self.running[self.keys[row["node"]]].add(hour_of(row["interval_start"]))
        # vCPU and memory of a node, and what pods request of it, in resource-seconds.
        self.capacity: dict[str, tuple[Fraction, Fraction]] = {}
        self.pods: dict[tuple[int, str], dict[str, tuple[Fraction, Fraction]]] = defaultdict(dict)
        for row in rows_of(folder / "pods.csv"):
            node, cpu, memory = (
                row[name]
                for name in ("node", "pod_request_cpu_core_seconds", "pod_request_memory_byte_seconds")
            )
            of_node = (row["node_capacity_cpu_cores"], row["node_capacity_memory_bytes"])
            self.capacity[node] = (Fraction(of_node[0]), Fraction(of_node[1]))
            self.pods[hour_of(row["interval_start"]), node][row["pod"]] = (Fraction(cpu), Fraction(memory))

    def hours(self, lines: list[Line]) -> dict[int, tuple[int, int]]:
        """Billed and effective cost of each hour."""
        sums: dict[int, tuple[int, int]] = {}
        for line in lines:
            for hour, billed, effective in parts(line, self.running.get(line.key, set())):
                before = sums.get(hour, (0, 0))
                sums[hour] = (before[0] + billed, before[1] + effective)
        return sums

    def rows(self, lines: list[Line]) -> Rows:
        """The rows of nodes, before rounding."""
        nodes = {key: node for node, key in self.keys.items()}
        components: dict[tuple[int, str, str, int], tuple[int, int]] = {}
        for line in lines:
            running = self.running.get(line.key)
            if running is None or line.is_of_commitment:
                continue
            for hour, billed, effective in parts(line, running):
                if hour in running:
                    key = (hour, nodes[line.key], line.commitment, line.price)
                    before = components.get(key, (0, 0))
                    components[key] = (before[0] + billed, before[1] + effective)
        rows: Rows = {}
        for (hour, node, commitment, price), costs in components.items():
            for pod, share in self.shares(hour, node).items():
                billed, effective = (cost * share for cost in costs)
                rows[hour, node, pod, commitment, price] = (billed, effective)
        return rows

    def shares(self, hour: int, node: str) -> dict[str | None, Fraction]:
        """The shares of pods in a node.

        vCPU and memory carry the cost by their weights. Pods pay each by their requests: what nobody requests
        goes to them in the same ratio, so capacity does not matter here.
        """
        cpu, memory = self.capacity[node]
        weights = (CPU * cpu, GIB * memory / 2**30)
        pods = self.pods.get((hour, node))
        if not pods:
            return {None: Fraction(1)}
        sums = [sum(requests[index] for requests in pods.values()) for index in range(2)]
        return {
            pod: sum(weights[index] * requests[index] / sums[index] for index in range(2)) / sum(weights)
            for pod, requests in pods.items()
        }
