// Charts over time, drawn by uPlot. Only places on a chart are floating-point numbers.
const COLORS = 8;
const CHART_HEIGHT = 280;
const STEP = DATA.by_day ? 86400 : 3600;
/** Seconds of the times of the data. */
const SECONDS = DATA.times.map((time) => Date.parse(DATA.by_day ? time : `${time}:00Z`) / 1000);
/** Round distances between times on an axis, in seconds. */
const TIMES_BETWEEN = [
  ...[1, 2, 3, 4, 6, 8, 12].map((hours) => hours * 3600),
  ...[1, 2, 3, 4, 5, 7, 10, 15, 30, 60, 90, 120, 180, 365, 730].map((days) => days * 86400),
].filter((seconds) => seconds >= STEP);

/** The charts on the page. */
const plots = new Set();
for (const query of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(query).addEventListener("change", () => plots.forEach((plot) => plot.redraw()));
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const utc = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
const DAY = utc({ day: "numeric", month: "short" });
const MONTH = utc({ month: "short", year: "numeric" });
const HOUR = utc({ hour: "2-digit", minute: "2-digit" });

/** The names of times on an axis, which lie so many seconds apart. */
function timeNames(times, between) {
  return times.map((seconds) => {
    const format = between >= 30 * 86400 ? MONTH : seconds % 86400 === 0 ? DAY : HOUR;
    return format.format(seconds * 1000);
  });
}

/** The names of amounts on an axis. */
function amountNames(numbers) {
  const top = Math.max(...numbers);
  const format = new Intl.NumberFormat("en", {
    maximumSignificantDigits: 6,
    notation: top >= 1e6 ? "compact" : "standard",
  });
  return numbers.map((amount) => `${format.format(amount)} ${state.currency}`);
}

const swatch = (at) => element("span", { class: `swatch s${Math.min(at, COLORS)}` });

/** The tooltip of one time: the total and its parts. */
function tipOf(names, values, at) {
  const all = names.map((name, color) => [name, values(at, name), color]);
  const parts = all.filter(([, atoms]) => atoms !== 0n);
  const total = parts.reduce((sum, [, atoms]) => sum + atoms, 0n);
  const line = (name, atoms, ...mark) =>
    element("tr", {}, element("td", {}, ...mark, name), element("td", { class: "n" }, money(atoms)));
  const lines = parts.map(([name, atoms, color]) => line(name, atoms, swatch(color)));
  const time = DATA.by_day ? DATA.times[at] : DATA.times[at].replace("T", " ") + ":00 UTC";
  if (parts.length !== 1) lines.push(line("total", total));
  return [element("strong", {}, time), element("table", { role: "presentation" }, ...lines)];
}

function options(names, width, onCursor) {
  const bars = uPlot.paths.bars({ size: [0.86, 90] });
  // The highest stack is drawn first, and the lower ones over it.
  const series = names.map((_, at) => ({
    paths: bars,
    points: { show: false },
    fill: () => color(`s${Math.min(names.length - 1 - at, COLORS)}`),
    width: 0,
  }));
  const axis = { stroke: () => color("soft"), font: "12px system-ui, sans-serif", gap: 4 };
  const line = { stroke: () => color("line"), width: 1 };
  return {
    width,
    height: CHART_HEIGHT,
    padding: [10, 12, 0, 0],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { range: (_, first, last) => [first - STEP / 2, last + STEP / 2] },
      y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        ticks: line,
        space: 64,
        incrs: TIMES_BETWEEN,
        values: (_, times, axisAt, space, between) => timeNames(times, between),
      },
      {
        ...axis,
        grid: line,
        ticks: { show: false },
        space: 44,
        values: (_, amounts) => amountNames(amounts),
        size: (_, names) => 10 + 7 * Math.max(6, ...(names ?? []).map((name) => name.length)),
      },
    ],
    series: [{}, ...series],
    hooks: { setCursor: [onCursor] },
  };
}

/** The heights of the bars: for each time, the sum of a series and the series below it. */
function stacked(names, values) {
  const sums = SECONDS.map(() => 0n);
  const rows = names.map((name) =>
    SECONDS.map((_, at) => {
      const atoms = values(at, name);
      if (atoms > 0n) sums[at] += atoms;
      return Number(sums[at]) / 1e12;
    }),
  );
  return [SECONDS, ...rows.reverse()];
}

/** Stacked bars over time, with a table of the same figures for those who do not see them. */
function chart(id, names, values, label) {
  const tip = element("div", { class: "tip", role: "status", hidden: "" });
  const holder = element("div", {
    class: "chart",
    role: "group",
    tabindex: "0",
    "aria-label": `${label}. Arrow keys read the bars; a table of the same figures follows.`,
  });
  holder.append(tip);
  let plot = null;
  let at = null;
  const onCursor = ({ cursor, over, bbox }) => {
    at = cursor.left < 0 ? null : cursor.idx;
    tip.hidden = at === null || at === undefined;
    if (tip.hidden) return;
    tip.replaceChildren(...tipOf(names, values, at));
    const left = over.offsetLeft + cursor.left;
    const beside = left + 16 + tip.offsetWidth > holder.clientWidth ? left - 16 - tip.offsetWidth : left + 16;
    tip.style.left = `${Math.max(0, Math.min(beside, holder.clientWidth - tip.offsetWidth))}px`;
  };
  holder.addEventListener("keydown", (event) => {
    const last = SECONDS.length - 1;
    const steps = { ArrowLeft: (at ?? last + 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: last };
    const next = steps[event.key];
    if (event.key === "Escape" && at !== null) {
      event.stopPropagation();
      plot.setCursor({ left: -10, top: -10 });
    } else if (next !== undefined) {
      const left = plot.valToPos(SECONDS[Math.max(0, Math.min(next, last))], "x");
      plot.setCursor({ left, top: 10 });
    } else return;
    event.preventDefault();
  });
  // The width is known when the chart is on the page, and changes with it.
  const observer = new ResizeObserver(() => {
    if (!holder.isConnected) {
      observer.disconnect();
      if (plot) plots.delete(plot);
      plot?.destroy();
    } else if (plot) plot.setSize({ width: holder.clientWidth, height: CHART_HEIGHT });
    else {
      plot = new uPlot(options(names, holder.clientWidth, onCursor), stacked(names, values), holder);
      plots.add(plot);
    }
  });
  observer.observe(holder);
  const legend = names.map((name, at) => element("li", {}, swatch(at), name));
  const columns = [
    words("time", (at) => DATA.times[at]),
    ...names.map((name) => costs(name, (at) => values(at, name))),
  ];
  const details = element("details", {}, element("summary", {}, "Figures as a table"));
  details.addEventListener("toggle", () => {
    if (details.children.length > 1) return;
    details.append(table(`${id}-figures`, "The same figures", columns, [...SECONDS.keys()]));
  });
  return [element("ul", { class: "legend" }, ...legend), holder, details];
}
