// Bills of providers compared with estimates, by day and by cluster.

/** The sums of a day or a cluster. */
const BASES = ["nodes", "estimate", "agreements", "shared", "estimated"];

/** A number for each of the sums. */
const sumsByBasis = (of) => Object.fromEntries(BASES.map((name) => [name, of(name)]));

/** The chosen rows, with their sums as numbers. */
const chosenBases = (rows) =>
  rows
    .filter(({ organization, currency }) => isChosen(organization, currency))
    .map((row) => ({ ...row, sums: sumsByBasis((name) => whole(row.sums[name])) }));

/** The days, each with the sums of all chosen organizations. */
function billedDays() {
  const days = new Map();
  for (const { date, is_billed, sums } of chosenBases(DATA.bills.days)) {
    const day = days.get(date) ?? { date, is_billed: false, sums: sumsByBasis(() => 0n) };
    day.is_billed ||= is_billed;
    for (const name of BASES) day.sums[name] += sums[name];
    days.set(date, day);
  }
  return [...days.values()];
}

/** The columns of the sums. Only rows of nodes have an estimate that they can be compared with. */
function basisColumns() {
  const difference = ({ sums }) => sums.nodes - sums.estimate;
  return [
    costs("billed nodes", ({ sums }) => sums.nodes),
    costs("their estimate", ({ sums }) => sums.estimate),
    costs("difference", difference),
    {
      name: "difference in %",
      value: (row) => (row.sums.estimate === 0n ? 0n : (difference(row) * ONE) / row.sums.estimate),
      cell: (row) => percent(difference(row), row.sums.estimate),
      isNumber: true,
    },
    costs("billed agreements", ({ sums }) => sums.agreements),
    costs("shared charges", ({ sums }) => sums.shared),
    costs("still estimated", ({ sums }) => sums.estimated),
  ];
}

function bills() {
  const days = billedDays();
  if (!days.some((day) => day.is_billed)) return [];
  const title = "Bills";
  const byDay = [words("day", (row) => row.date), ...basisColumns()];
  const byCluster = [
    words("cluster", (row) => row.cluster || "(no cluster)"),
    ...organizations(),
    ...basisColumns(),
  ];
  const caption =
    "By day: what nodes cost by the bill, and by their own prices; billed commitments and reservations; " +
    "shared charges; and what no bill has yet";
  return [
    section(
      title,
      table(idOf(title), caption, byDay, days),
      table(idOf("Bills by cluster"), "The same by cluster", byCluster, chosenBases(DATA.bills.clusters)),
    ),
  ];
}
