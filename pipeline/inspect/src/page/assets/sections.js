// The sections of the page.

function tiles({ sums }) {
  const all = sums.total;
  const before = [...sumsBefore().values()].reduce((sum, cost) => sum + cost, 0n);
  const change = DATA.before_hours
    ? [money(all - before), ` compared with ${DATA.before_hours[0]} to ${DATA.before_hours[1]}`]
    : [];
  const tile = (name, atoms, ...note) =>
    element(
      "div",
      { class: "tile" },
      element("dt", {}, name),
      element("dd", { "data-sum": name }, money(atoms), element("small", {}, ...note)),
    );
  return element(
    "dl",
    { class: "tiles" },
    tile("Total cost", all, ...change),
    tile("Used on nodes", sums.used, percent(sums.used, all)),
    tile("Unused on nodes", sums.unused, percent(sums.unused, all)),
    tile("Idle nodes", sums.idle, `part of unused on nodes, ${percent(sums.idle, all)}`),
    tile("Unused reservations", sums.reservation, percent(sums.reservation, all)),
    tile("Unused commitments", sums.commitment, percent(sums.commitment, all)),
    tile("Over quota", sums.over, percent(sums.over, all)),
  );
}

/** The organization, if rows are of several. */
const organizations = () =>
  CURRENCIES.size > 1 && !state.organization ? [words("organization", (row) => row.organization)] : [];
const atomsOf = (key) => (row) => whole(row[key]);
const sumOf =
  (...keys) =>
  (row) =>
    keys.reduce((sum, key) => sum + whole(row[key]), 0n);
const named = (row) => (row.name && row.name !== row.id ? `${row.name} (${row.id})` : row.id);

function reservations() {
  return listed(
    "Reservations",
    "Unit-hours that pods held, and the cost of unit-hours that no pod held",
    [
      words("reservation", named),
      ...organizations(),
      words("GPU model", (row) => row.gpu_model),
      parts("utilization", atomsOf("used_seconds"), sumOf("used_seconds", "unused_seconds")),
      costs("unused cost", atomsOf("unused_cost")),
    ],
    mine(DATA.agreements.reservations),
  );
}

function savings() {
  const paid = sumOf("used_cost", "unused_cost");
  return listed(
    "Savings",
    "What each commitment cost, used and unused; what the capacity that it covered costs at list prices; " +
      "and what it saved: the covered cost less its own",
    [
      words("commitment", named),
      ...organizations(),
      parts("utilization", atomsOf("used_cost"), paid),
      costs("used cost", atomsOf("used_cost")),
      costs("unused cost", atomsOf("unused_cost")),
      costs("covered cost", atomsOf("list_cost_avoided")),
      costs("saved", (row) => whole(row.list_cost_avoided) - paid(row)),
    ],
    mine(DATA.agreements.commitments),
  );
}

function quotas() {
  return listed(
    "Quotas",
    "Cost over quota (the same for every resource of a quota), and amounts borrowed and lent",
    [
      words("quota", (row) => `${row.cluster}/${row.id}`),
      ...organizations(),
      words("resource", (row) => row.resource),
      costs("over-quota cost", atomsOf("over_quota_cost")),
      costs("preemptible part of it", atomsOf("preemptible_cost")),
      amounts("borrowed amount-hours", atomsOf("borrowed_hours")),
      amounts("lent amount-hours", atomsOf("lent_hours")),
    ],
    mine(DATA.agreements.quotas),
  );
}

function pools() {
  return listed(
    "GPU pools",
    "Charges compared with the cost of the nodes, and budgets",
    [
      words("pool", (row) => row.id),
      ...organizations(),
      costs("charges", atomsOf("charges")),
      costs("node cost", atomsOf("node_cost")),
      costs("spend of the month", atomsOf("spend_month")),
      words("budget exceeded", (row) => row.exceeded || "none"),
    ],
    mine(DATA.agreements.pools),
  );
}

function gpus({ models }) {
  return listed(
    "GPUs",
    "GPU-hours allocated to pods of nodes and of the rate card, and their cost",
    [
      words("GPU model", (row) => row.model || "(none named)"),
      amounts("GPU-hours", (row) => row.hours),
      costs("GPU cost", (row) => row.cost),
      figures(
        "cost per GPU-hour",
        (row) => (row.cost * ONE) / row.hours,
        (cost) => money(cost, 4),
      ),
    ],
    [...models.values()],
    2,
  );
}

function gpuSharing() {
  const models = new Map();
  const keys = ["physical_hours", "allocated_hours", "oversubscribed_hours"];
  for (const row of mine(DATA.gpu_sharing)) {
    const sums = models.get(row.gpu_model) ?? [0n, 0n, 0n];
    models.set(
      row.gpu_model,
      keys.map((key, at) => sums[at] + whole(row[key])),
    );
  }
  return listed(
    "GPU sharing",
    "GPU-hours of the nodes' physical cards, GPU-hours that pods held of them, and the part that they held " +
      "above the cards of their node, as under time-slicing",
    [
      words("GPU model", ([model]) => model || "(none named)"),
      amounts("physical GPU-hours", ([, sums]) => sums[0]),
      amounts("allocated GPU-hours", ([, sums]) => sums[1]),
      parts(
        "allocated",
        ([, sums]) => sums[1],
        ([, sums]) => sums[0],
      ),
      amounts("oversubscribed GPU-hours", ([, sums]) => sums[2]),
    ],
    [...models],
    1,
  );
}

function unpriced() {
  return listed(
    "Pods without a price",
    "Their cost is 0, or lacks the GPU, until what is missing arrives",
    [
      words("reason", (row) => row.reason),
      ...organizations(),
      figures("pods", (row) => row.pods, String),
      amounts("pod-hours", (row) => whole(row.seconds) / 3600n),
      words("how to fix it", (row) => row.fix),
    ],
    mine(DATA.unpriced),
  );
}

function movers({ groups }) {
  if (!DATA.before_hours) return [];
  const before = sumsBefore();
  const names = new Set([...groups.keys(), ...before.keys()]);
  const rows = [...names].map((name) => {
    const [from, to] = [before.get(name) ?? 0n, groups.get(name) ?? 0n];
    return { name, from, to, change: to - from };
  });
  const size = ({ change }) => (change < 0n ? -change : change);
  rows.sort((a, b) => compare(size(b), size(a)));
  return listed(
    "Top movers",
    `Compared with ${DATA.before_hours[0]} to ${DATA.before_hours[1]}`,
    [
      words(DATA.group_by, (row) => row.name),
      costs("before", (row) => row.from),
      costs("now", (row) => row.to),
      costs("change", (row) => row.change),
    ],
    rows.slice(0, 15),
    3,
  );
}

function groupTable({ groups, sums }) {
  const pick = ([name]) =>
    button(name, () => {
      state.group = state.group === name ? "" : name;
      draw();
      document.getElementById(idOf("Pods and other costs")).scrollIntoView();
    });
  const title = "By " + DATA.group_by;
  const columns = [
    words(DATA.group_by, ([name]) => name, pick),
    costs("cost", ([, cost]) => cost),
    figures(
      "of total",
      ([, cost]) => cost,
      (cost) => percent(cost, sums.total),
    ),
  ];
  return section(title, table(idOf(title), "Choose a group to see its pods", columns, largest(groups), 1));
}

function bearerTable({ bearers }) {
  const title = "Pods and other costs";
  const name = (at) => {
    const kind = bearer(at, "kind");
    if (kind === "pod") return [bearer(at, "namespace"), bearer(at, "name")].filter(Boolean).join("/");
    if (kind === "shared") return `shared charge ${bearer(at, "name")}`;
    return kind === "idle" ? `idle node ${bearer(at, "name")}` : `unused ${kind} ${bearer(at, "name")}`;
  };
  const has = (at) =>
    ["name", "namespace", "uid", "cluster"].some((column) =>
      bearer(at, column).toLowerCase().includes(state.text.toLowerCase()),
    );
  const columns = [
    words(
      "pod",
      ([at]) => name(at),
      ([at]) => button(name(at), () => detail(at)),
    ),
    ...(CURRENCIES.size > 1 && !state.organization
      ? [words("organization", ([at]) => bearer(at, "organization"))]
      : []),
    words("cluster", ([at]) => bearer(at, "cluster")),
    costs("cost", ([, sum]) => sum.cost),
    costs("unused", ([, sum]) => sum.unused),
    costs("over quota", ([, sum]) => sum.over_quota),
    amounts("GPU-hours", ([, sum]) => sum.gpu_hours),
  ];
  const holder = element("div");
  const fill = () => {
    const isIn = ([at]) => (!state.group || bearer(at, "group") === state.group) && (!state.text || has(at));
    const rows = [...bearers].filter(isIn);
    const caption = `${state.group || "All groups"}: ${rows.length}`;
    const byCost = columns.findIndex((column) => column.name === "cost");
    holder.replaceChildren(table(idOf(title), caption, columns, rows, byCost));
  };
  const filter = element("input", {
    type: "search",
    value: state.text,
    "aria-label": "Name, namespace or uid",
    placeholder: "name, namespace or uid",
    onchange: (event) => {
      state.text = event.target.value;
      fill();
    },
  });
  const all = button("all groups", () => {
    state.group = "";
    draw();
  });
  fill();
  return section(title, element("p", { class: "controls" }, filter, " ", state.group ? all : ""), holder);
}
