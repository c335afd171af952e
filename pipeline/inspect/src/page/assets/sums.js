// Adds up the page's data. Money and quantities are BigInt numbers of 10^-12 throughout.
const DATA = JSON.parse(document.getElementById("data").textContent);
const ONE = 1000000000000n;

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

/** The choices on the page. */
const state = { organization: "", currency: "", stack: "group", group: "", text: "" };

function add(map, key, atoms) {
  map.set(key, (map.get(key) ?? 0n) + atoms);
}

const largest = (map) => [...map].sort((a, b) => (a[1] < b[1] ? 1 : a[1] > b[1] ? -1 : a[0] < b[0] ? -1 : 1));

/** The currencies in which each organization has cost. */
const CURRENCIES = new Map();
DATA.bearers.organization.forEach((_, at) => {
  const organization = bearer(at, "organization");
  if (!CURRENCIES.has(organization)) CURRENCIES.set(organization, new Set());
  CURRENCIES.get(organization).add(bearer(at, "currency"));
});

/** Whether amounts of an organization in a currency are among those that are shown. */
const isChosen = (organization, currency) =>
  currency === state.currency && (!state.organization || organization === state.organization);

/** Rows of chosen organizations. An organization without any cost is shown in every currency. */
const mine = (rows) =>
  rows.filter(
    ({ organization }) =>
      (!state.organization || organization === state.organization) &&
      (CURRENCIES.get(organization)?.has(state.currency) ?? true),
  );

/** The stack of a bearer. */
function stackOf(at) {
  if (state.stack === "group") return bearer(at, "group");
  return {
    pod: "pods",
    idle: "idle nodes",
    reservation: "unused reservations",
    commitment: "unused commitments",
    shared: "shared charges",
  }[bearer(at, "kind")];
}

/** The sums of every bearer: added up once, because choices are of bearers. */
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
  const sums = { total: 0n, used: 0n, unused: 0n, over: 0n };
  Object.assign(sums, { idle: 0n, reservation: 0n, commitment: 0n, shared: 0n });
  const groups = new Map();
  const stacks = new Map();
  const cells = new Map();
  const bearers = new Map();
  const models = new Map();
  const cellsOf = SUMS.map((sum, who) => {
    if (!isChosen(bearer(who, "organization"), bearer(who, "currency"))) return null;
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
      const of = models.get(model) ?? { model, hours: 0n, cost: 0n };
      models.set(model, { model, hours: of.hours + sum.gpu_hours, cost: of.cost + sum.gpu_cost });
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

/** Cost of groups in the period before. */
function sumsBefore() {
  const before = new Map();
  for (const [organization, currency, group, cost] of DATA.before) {
    if (isChosen(organization, currency)) add(before, group, whole(cost));
  }
  return before;
}
