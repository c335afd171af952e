"use strict";
// Adds up the page's data and shows it. Money and quantities are BigInt numbers of 10^-12 throughout: only
// the places of marks on a chart are numbers. Texts of the lake are set as text, never as HTML.
const DATA = JSON.parse(document.getElementById("data").textContent);
const ONE = 1000000000000n;
const COLORS = 8;
const ROWS_SHOWN = 100;
const COST = "cost";

/** Whether a sum had more than 38 digits, and so is missing. */
let isCut = false;

function whole(text) {
  if (text === "0") return 0n;
  if (text.startsWith("more")) {
    isCut = true;
    return 0n;
  }
  return BigInt(text);
}

const FACTS = {};
for (const name of ["cost", "used", "unused", "over_quota", "gpu_cost", "gpu_hours"]) {
  FACTS[name] = DATA.facts[name].map(whole);
}
const bearer = (at, column) => DATA.texts[DATA.bearers[column][at]];

/** A decimal of so many places, half away from zero, with groups of three digits. */
function decimal(atoms, places = 2) {
  const unit = 10n ** BigInt(12 - places);
  const sign = atoms < 0n ? "-" : "";
  const rounded = ((atoms < 0n ? -atoms : atoms) + unit / 2n) / unit;
  const digits = rounded.toString().padStart(places + 1, "0");
  const integer = digits.slice(0, digits.length - places).replace(/\B(?=(\d{3})+$)/g, ",");
  return sign + integer + (places ? "." + digits.slice(digits.length - places) : "");
}

/** All twelve decimals. */
function exact(atoms) {
  return decimal(atoms, 12)
    .replace(/,/g, "")
    .replace(/\.?0+$/, "");
}

/** A part of a whole in per cent, with one decimal. */
function percent(part, all) {
  return all === 0n ? "–" : decimal((part * 100n * ONE) / all, 1) + " %";
}

/** An element; children that are texts become text nodes. */
function element(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "line", "text", "title", "g"].includes(name);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const state = {
  organization: "",
  currency: "",
  stack: "group",
  group: "",
  text: "",
  sort: COST,
  shown: ROWS_SHOWN,
};
const number = (atoms, places) => element("span", { title: exact(atoms) }, decimal(atoms, places));

/** A table: columns are [name, is it a number]; rows are lists of texts and elements. */
function table(caption, columns, rows) {
  const head = columns.map(([name, numeric]) =>
    element("th", { scope: "col", class: numeric ? "n" : undefined }, name),
  );
  const cell = (value, at) => element("td", { class: columns[at][1] ? "n" : "wide" }, value);
  const body = rows.map((row) => element("tr", {}, ...row.map(cell)));
  return element(
    "div",
    { class: "scroll" },
    element(
      "table",
      {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...body),
    ),
  );
}

function add(map, key, atoms) {
  map.set(key, (map.get(key) ?? 0n) + atoms);
}

const largest = (map) => [...map].sort((a, b) => (a[1] < b[1] ? 1 : a[1] > b[1] ? -1 : a[0] < b[0] ? -1 : 1));

/** Whether a bearer is among those that are shown. */
function isShown(at) {
  return (
    bearer(at, "currency") === state.currency &&
    (!state.organization || bearer(at, "organization") === state.organization)
  );
}

/** What a bearer is stacked by. */
function stackOf(at) {
  if (state.stack === "group") return bearer(at, "group");
  return {
    pod: "pods",
    idle: "idle nodes",
    reservation: "unused reservations",
    commitment: "unused commitments",
  }[bearer(at, "kind")];
}

/** What every bearer had in all: added up once, as choices are of bearers. */
const SUMS = Array.from(DATA.bearers.kind, () => {
  return { cost: 0n, used: 0n, unused: 0n, over_quota: 0n, gpu_cost: 0n, gpu_hours: 0n };
});
for (const name of Object.keys(FACTS)) {
  const values = FACTS[name];
  DATA.facts.bearer.forEach((who, at) => {
    if (values[at] !== 0n) SUMS[who][name] += values[at];
  });
}

/** Adds up everything that is shown. */
function addUp() {
  const sums = { total: 0n, idle: 0n, used: 0n, unused: 0n, reservation: 0n, commitment: 0n, over: 0n };
  const groups = new Map();
  const stacks = new Map();
  const cells = new Map();
  const bearers = new Map();
  const models = new Map();
  const cellsOf = SUMS.map((sum, who) => {
    if (!isShown(who)) return null;
    const kind = bearer(who, "kind");
    sums.total += sum.cost;
    sums.used += sum.used;
    sums.unused += sum.unused;
    sums.over += sum.over_quota;
    if (kind !== "pod") sums[kind] += sum.cost;
    add(groups, bearer(who, "group"), sum.cost);
    bearers.set(who, sum);
    if (kind === "pod" && sum.gpu_hours > 0n) {
      const model = bearer(who, "gpu_model");
      const of = models.get(model) ?? { hours: 0n, cost: 0n };
      models.set(model, { hours: of.hours + sum.gpu_hours, cost: of.cost + sum.gpu_cost });
    }
    const stack = stackOf(who);
    add(stacks, stack, sum.cost);
    if (!cells.has(stack)) cells.set(stack, new Array(DATA.times.length).fill(0n));
    return cells.get(stack);
  });
  DATA.facts.bearer.forEach((who, at) => {
    if (cellsOf[who]) cellsOf[who][DATA.facts.time[at]] += FACTS.cost[at];
  });
  return { sums, groups, stacks, cells, bearers, models };
}

/** Stacked bars over time, with a table of the same figures for those who do not see them. */
function chart(names, values, label) {
  const width = 1000,
    height = 260,
    left = 70,
    bottom = 24,
    times = DATA.times;
  const totals = times.map((_, time) => names.reduce((sum, name) => sum + values(time, name), 0n));
  const top = totals.reduce((most, total) => (total > most ? total : most), 0n) || 1n;
  const tall = (atoms) => (Number((atoms * 100000n) / top) / 100000) * (height - bottom - 10);
  const step = (width - left) / times.length;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const part of [0n, 1n, 2n, 3n, 4n]) {
    const y = height - bottom - tall((top * part) / 4n);
    svg.append(
      element("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }),
      element("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, decimal((top * part) / 4n)),
    );
  }
  times.forEach((time, at) => {
    let y = height - bottom;
    names.forEach((name, color) => {
      const atoms = values(at, name);
      if (atoms <= 0n) return;
      const bar = element("rect", {
        class: "s" + Math.min(color, COLORS),
        x: left + at * step + step * 0.08,
        width: step * 0.84,
        y: y - tall(atoms),
        height: tall(atoms),
      });
      bar.append(element("title", {}, `${time}, ${name}: ${exact(atoms)} ${state.currency}`));
      svg.append(bar);
      y -= tall(atoms);
    });
    if (at % Math.max(1, Math.ceil(times.length / 12)) === 0) {
      const text = DATA.by_day ? time.slice(5) : time.slice(5).replace("T", " ") + "h";
      svg.append(element("text", { x: left + at * step, y: height - 6 }, text));
    }
  });
  const legend = element(
    "ul",
    { class: "legend" },
    ...names.map((name, color) =>
      element(
        "li",
        {},
        element(
          "svg",
          { viewBox: "0 0 12 12", "aria-hidden": "true" },
          element("rect", { class: "s" + Math.min(color, COLORS), width: 12, height: 12 }),
        ),
        name,
      ),
    ),
  );
  const figures = table(
    "The same figures",
    [["time", false], ...names.map((name) => [name, true])],
    times.map((time, at) => [time, ...names.map((name) => number(values(at, name)))]),
  );
  const details = element("details", {}, element("summary", {}, "Figures as a table"));
  details.addEventListener("toggle", () => details.children.length === 1 && details.append(figures));
  return [legend, svg, details];
}

function section(title, ...children) {
  const id = "s-" + title.toLowerCase().replace(/[^a-z]+/g, "-");
  return element("section", { "aria-labelledby": id }, element("h2", { id }, title), ...children);
}

function tiles({ sums }) {
  const all = sums.total;
  const before = DATA.before
    .filter(
      ([organization, currency]) =>
        currency === state.currency && (!state.organization || organization === state.organization),
    )
    .reduce((sum, row) => sum + whole(row[3]), 0n);
  const change = DATA.before_hours
    ? `${decimal(all - before)} compared with ${DATA.before_hours[0]} to ${DATA.before_hours[1]}`
    : "";
  const tile = (name, atoms, note) =>
    element(
      "div",
      { class: "tile" },
      element("dt", {}, name),
      element("dd", { "data-sum": name }, number(atoms)),
      element("small", {}, note),
    );
  return element(
    "dl",
    { class: "tiles" },
    tile("Total cost", all, change),
    tile("Used on nodes", sums.used, percent(sums.used, all)),
    tile("Unused on nodes", sums.unused, percent(sums.unused, all)),
    tile("Idle nodes", sums.idle, `part of unused on nodes, ${percent(sums.idle, all)}`),
    tile("Unused reservations", sums.reservation, percent(sums.reservation, all)),
    tile("Unused commitments", sums.commitment, percent(sums.commitment, all)),
    tile("Over quota", sums.over, percent(sums.over, all)),
  );
}

const mine = (rows) => rows.filter((row) => !state.organization || row.organization === state.organization);

/** A bar of a part, with its per cent. */
function bar(part, all) {
  const value = all === 0n ? 0 : Number((part * 1000n) / all) / 1000;
  const text = percent(part, all);
  return element("span", {}, element("meter", { min: 0, max: 1, value, "aria-label": text }), " " + text);
}

/** A section with one table; none without rows. A column: its heading, whether it is a number, its cell. */
function listed(title, caption, rows, columns) {
  if (!rows.length) return [];
  const headings = columns.map(([heading, isNumber]) => [heading, isNumber]);
  const cells = rows.map((of) => columns.map(([, , cell]) => cell(of)));
  return [section(title, table(caption, headings, cells))];
}

const figure = (key) => (of) => number(whole(of[key]));
const used = (part, rest) => (of) => bar(whole(of[part]), whole(of[part]) + whole(of[rest]));
const organization = ["organization", false, (of) => of.organization];
const named = (of) => `${of.name} (${of.id})`;

function agreements() {
  const { reservations, commitments, quotas, pools } = DATA.agreements;
  return [
    ...listed(
      "Reservations",
      "Unit-hours that pods held, and the cost of unit-hours that no pod held",
      mine(reservations),
      [
        organization,
        ["reservation", false, named],
        ["GPU model", false, (of) => of.gpu_model],
        ["utilization", false, used("used_seconds", "unused_seconds")],
        ["unused cost", true, figure("unused_cost")],
      ],
    ),
    ...listed("Commitments", "Cost applied to nodes, and cost left unused", mine(commitments), [
      organization,
      ["commitment", false, named],
      ["utilization", false, used("used_cost", "unused_cost")],
      ["used cost", true, figure("used_cost")],
      ["unused cost", true, figure("unused_cost")],
      ["list cost avoided", true, figure("list_cost_avoided")],
    ]),
    ...listed(
      "Quotas",
      "Cost over quota (the same for every resource of a quota), and amounts borrowed and lent",
      mine(quotas),
      [
        organization,
        ["quota", false, (of) => `${of.cluster}/${of.id}`],
        ["resource", false, (of) => of.resource],
        ["over-quota cost", true, figure("over_quota_cost")],
        ["preemptible part of it", true, figure("preemptible_cost")],
        ["borrowed amount-hours", true, figure("borrowed_hours")],
        ["lent amount-hours", true, figure("lent_hours")],
      ],
    ),
    ...listed("GPU pools", "Charges compared with the cost of the nodes, and budgets", mine(pools), [
      organization,
      ["pool", false, (of) => of.id],
      ["charges", true, figure("charges")],
      ["node cost", true, figure("node_cost")],
      ["spend of the month", true, figure("spend_month")],
      ["budget exceeded", false, (of) => of.exceeded || "none"],
    ]),
  ];
}

function gpus({ models }) {
  const rows = [...models].sort((a, b) => (a[1].cost < b[1].cost ? 1 : -1));
  if (!rows.length) return [];
  return [
    section(
      "GPUs",
      table(
        "GPU-hours allocated to pods of nodes and of the rate card, and their cost",
        [
          ["GPU model", false],
          ["GPU-hours", true],
          ["GPU cost", true],
          ["cost per GPU-hour", true],
        ],
        rows.map(([model, of]) => [
          model || "(none named)",
          number(of.hours),
          number(of.cost),
          number((of.cost * ONE) / of.hours, 4),
        ]),
      ),
    ),
  ];
}

function unpriced() {
  const rows = mine(DATA.unpriced);
  if (!rows.length) return [];
  return [
    section(
      "Pods without a price",
      table(
        "Their cost is 0, or lacks the GPU, until what is missing arrives",
        [
          ["organization", false],
          ["reason", false],
          ["pods", true],
          ["pod-hours", true],
          ["how to fix it", false],
        ],
        rows.map((of) => [
          of.organization,
          of.reason,
          String(of.pods),
          number(whole(of.seconds) / 3600n),
          of.fix,
        ]),
      ),
    ),
  ];
}

function movers({ groups }) {
  if (!DATA.before_hours) return [];
  const before = new Map();
  for (const [organization, currency, group, cost] of DATA.before) {
    if (currency === state.currency && (!state.organization || organization === state.organization)) {
      add(before, group, whole(cost));
    }
  }
  const names = new Set([...groups.keys(), ...before.keys()]);
  const rows = [...names].map((name) => [name, before.get(name) ?? 0n, groups.get(name) ?? 0n]);
  const size = ([, from, to]) => (to > from ? to - from : from - to);
  rows.sort((a, b) => (size(a) < size(b) ? 1 : -1));
  return [
    section(
      "Top movers",
      table(
        `Compared with ${DATA.before_hours[0]} to ${DATA.before_hours[1]}`,
        [
          [DATA.group_by, false],
          ["before", true],
          ["now", true],
          ["change", true],
        ],
        rows.slice(0, 15).map(([name, from, to]) => [name, number(from), number(to), number(to - from)]),
      ),
    ),
  ];
}

function groupTable({ groups, sums }) {
  const pick = (name) =>
    element(
      "button",
      {
        type: "button",
        onclick: () => {
          state.group = state.group === name ? "" : name;
          draw();
          document.getElementById("s-pods-and-other-costs").scrollIntoView();
        },
      },
      name,
    );
  return section(
    "By " + DATA.group_by,
    table(
      "Choose a group to see its pods",
      [
        [DATA.group_by, false],
        ["cost", true],
        ["of total", true],
      ],
      largest(groups).map(([name, cost]) => [pick(name), number(cost), percent(cost, sums.total)]),
    ),
  );
}

function bearerTable(added) {
  const has = (at) =>
    !state.text ||
    ["name", "namespace", "uid", "cluster"].some((column) =>
      bearer(at, column).toLowerCase().includes(state.text.toLowerCase()),
    );
  const rows = [...added.bearers].filter(
    ([at]) => (!state.group || bearer(at, "group") === state.group) && has(at),
  );
  rows.sort((a, b) =>
    a[1][state.sort] < b[1][state.sort] ? 1 : a[1][state.sort] > b[1][state.sort] ? -1 : a[0] - b[0],
  );
  const name = (at) => {
    const kind = bearer(at, "kind");
    const text =
      kind === "pod"
        ? `${bearer(at, "namespace")}/${bearer(at, "name")}`
        : kind === "idle"
          ? `idle node ${bearer(at, "name")}`
          : `unused ${kind} ${bearer(at, "name")}`;
    return element("button", { type: "button", onclick: () => detail(at) }, text);
  };
  const columns = [
    ["cost", "cost"],
    ["unused", "unused"],
    ["over_quota", "over quota"],
    ["gpu_hours", "GPU-hours"],
  ];
  const sort = element(
    "select",
    {
      "aria-label": "Sort by",
      onchange: (event) => {
        state.sort = event.target.value;
        draw();
      },
    },
    ...columns.map(([key, text]) =>
      element("option", { value: key, selected: state.sort === key ? "" : undefined }, text),
    ),
  );
  const filter = element("input", {
    type: "search",
    value: state.text,
    "aria-label": "Name, namespace or uid",
    placeholder: "name, namespace or uid",
    onchange: (event) => {
      state.text = event.target.value;
      draw();
    },
  });
  const all = element(
    "button",
    {
      type: "button",
      onclick: () => {
        state.group = "";
        draw();
      },
    },
    "all groups",
  );
  const more = element(
    "button",
    {
      type: "button",
      onclick: () => {
        state.shown += 1000;
        draw();
      },
    },
    "show more",
  );
  const shown = rows
    .slice(0, state.shown)
    .map(([at, sum]) => [
      name(at),
      bearer(at, "organization"),
      bearer(at, "cluster"),
      ...columns.map(([key]) => number(sum[key])),
    ]);
  return section(
    "Pods and other costs",
    element("p", { class: "controls" }, filter, " ", sort, " ", state.group ? all : ""),
    table(
      `${state.group || "All groups"}: ${shown.length} of ${rows.length}`,
      [
        ["pod", false],
        ["organization", false],
        ["cluster", false],
        ...columns.map(([, text]) => [text, true]),
      ],
      shown,
    ),
    rows.length > shown.length ? element("p", { class: "controls" }, more) : "",
  );
}

/** A word for a POSIX shell that is exactly this text; nothing where a terminal would obey it. */
function shellWord(text) {
  if (/[\p{Cc}\p{Bidi_Control}\u2028\u2029]/u.test(text)) return undefined;
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The command that explains one bearer, to be copied into a shell; nothing where no command is safe. */
function explainCommand(at) {
  const kind = bearer(at, "kind");
  const subject =
    kind === "pod"
      ? bearer(at, "uid")
      : kind === "idle"
        ? `${bearer(at, "cluster")}/${bearer(at, "name")}`
        : bearer(at, "name");
  const option = { idle: "node" }[kind] ?? kind;
  const words = [DATA.lake, subject, bearer(at, "organization")].map(shellWord);
  if (words.includes(undefined)) return undefined;
  const [lake, name, organization] = words;
  return (
    `prorata explain --lake ${lake} --hour ${bearer(at, "hour")} --${option} ${name} ` +
    `--organization ${organization}`
  );
}

/** How the cost of one bearer came about: explained here, if it cost much, and by which command. */
function explanation(at) {
  const told = DATA.explained[at];
  const command = explainCommand(at);
  const code = command
    ? element("code", {}, command)
    : "prorata explain; its names have characters that are not safe to copy.";
  if (!told) return [element("p", {}, "How its cost was computed in its most expensive hour: ", code)];
  const name = `How its cost was computed in its most expensive hour, ${bearer(at, "hour")} (UTC)`;
  return [
    element("h3", { id: "explained-title" }, name),
    element("pre", { role: "region", tabindex: "0", "aria-labelledby": "explained-title" }, told),
    element("p", {}, "Other hours: ", code),
  ];
}

/** One pod: its cost over time, and how it came about. */
function detail(at) {
  const over = new Map();
  DATA.facts.bearer.forEach((who, fact) => {
    if (who !== at) return;
    add(over, DATA.facts.time[fact], FACTS.cost[fact]);
  });
  const kind = bearer(at, "kind"),
    title = `${{ pod: "", idle: "idle node " }[kind] ?? `${kind} `}${bearer(at, "name")}`;
  const dialog = document.getElementById("detail");
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  dialog.replaceChildren(
    element("h2", { id: "detail-title" }, title),
    element(
      "p",
      {},
      ["organization", "cluster", "namespace", "uid", "gpu_model"]
        .filter((column) => bearer(at, column))
        .map((column) => `${column.replace("_", " ")} ${bearer(at, column)}`)
        .join(", "),
    ),
    ...chart([title], (time) => over.get(time) ?? 0n, `Cost of ${title} over time`),
    ...explanation(at),
    element("p", {}, close),
  );
  dialog.showModal();
}

function draw() {
  const added = addUp();
  const ranked = largest(added.stacks).map(([name]) => name);
  const names = ranked.slice(0, COLORS),
    rest = ranked.slice(COLORS);
  if (rest.length) names.push("(others)");
  const value = (time, name) =>
    name === "(others)" && rest.length
      ? rest.reduce((sum, other) => sum + added.cells.get(other)[time], 0n)
      : (added.cells.get(name)?.[time] ?? 0n);
  const by = state.stack === "group" ? DATA.group_by : "kind";
  const label = `Cost over time in ${state.currency}, stacked by ${by}`;
  document
    .getElementById("sections")
    .replaceChildren(
      tiles(added),
      section("Cost over time", ...chart(names, value, label)),
      groupTable(added),
      ...movers(added),
      ...gpus(added),
      ...agreements(),
      ...unpriced(),
      bearerTable(added),
    );
}

function choose(id, values, key) {
  const select = document.getElementById(id);
  select.replaceChildren(...values.map(([value, text]) => element("option", { value }, text)));
  state[key] = values.length ? values[0][0] : "";
  select.addEventListener("change", () => {
    state[key] = select.value;
    draw();
  });
}

function start() {
  const period = document.getElementById("period"),
    notices = document.getElementById("notices");
  for (const [file, why] of DATA.unreadable) {
    notices.append(
      element("p", { class: "bad" }, `${file} cannot be read: ${why}. Its rows are missing here.`),
    );
  }
  if (isCut) {
    notices.append(element("p", { class: "bad" }, "Sums of more than 38 digits are missing here."));
  }
  if (!DATA.hours) {
    period.textContent = DATA.lake;
    notices.append(element("p", {}, "The lake has no hours in this period: nothing has been closed yet."));
    document.getElementById("choices").hidden = true;
    return;
  }
  period.textContent = `${DATA.lake}, ${DATA.hours[0]} to ${DATA.hours[1]} (UTC)`;
  const distinct = (column) => [...new Set(DATA.bearers[column])].map((at) => DATA.texts[at]).sort();
  choose(
    "organization",
    [["", "all"], ...distinct("organization").map((name) => [name, name])],
    "organization",
  );
  choose(
    "currency",
    distinct("currency").map((name) => [name, name]),
    "currency",
  );
  choose(
    "stack",
    [
      ["group", DATA.group_by],
      ["kind", "kind of cost"],
    ],
    "stack",
  );
  draw();
}

start();
