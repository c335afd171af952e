// Tables that are sorted by a heading and scroll within the page.
const ROWS_SHOWN = 100;
const ROWS_MORE = 1000;

/** How each table is sorted, by its id: the index of a column, and whether the largest come first. */
const SORTED = {};
let tables = 0;

// Columns: a name, the value that sorts a row, and the cell that shows it. Numbers stand on the right.
const words = (name, value, cell = value) => ({ name, value, cell });
const figures = (name, value, cell) => ({ name, value, cell: (row) => cell(value(row)), isNumber: true });
const costs = (name, value) => figures(name, value, money);
const amounts = (name, value) => figures(name, value, number);
/** A column of parts of a whole: the part and the whole of a row. */
const parts = (name, part, all) => ({
  name,
  value: (row) => (all(row) === 0n ? -1n : (part(row) * ONE) / all(row)),
  cell: (row) => bar(part(row), all(row)),
});

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

/**
 * A table, sorted at first by the column of this index. It keeps its order when the table of the same id is
 * drawn again.
 */
function table(id, caption, columns, rows, first = 0) {
  const isDown = (at) => Boolean(columns[at].isNumber);
  const sorted = (SORTED[id] ??= { at: first, isDown: isDown(first) });
  const captionId = `caption-${(tables += 1)}`;
  const body = element("tbody");
  const foot = element("p", { class: "controls" });
  let shown = ROWS_SHOWN;
  const cell = (column, row) => element("td", { class: column.isNumber ? "n" : undefined }, column.cell(row));
  const heads = columns.map((column, at) => {
    const sort = () => {
      sorted.isDown = sorted.at === at ? !sorted.isDown : isDown(at);
      sorted.at = at;
      fill();
    };
    const attributes = { scope: "col", class: column.isNumber ? "n" : undefined };
    return element("th", attributes, button(column.name, sort));
  });
  function fill() {
    const { value } = columns[sorted.at];
    const sign = sorted.isDown ? -1 : 1;
    const keyed = rows.map((row) => [value(row), row]).sort((a, b) => sign * compare(a[0], b[0]));
    const visible = keyed.slice(0, shown).map(([, row]) => row);
    body.replaceChildren(
      ...visible.map((row) => element("tr", {}, ...columns.map((column) => cell(column, row)))),
    );
    heads.forEach((head, at) => {
      if (at !== sorted.at) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", sorted.isDown ? "descending" : "ascending");
    });
    const more = () => {
      shown += ROWS_MORE;
      fill();
    };
    const left = rows.length - visible.length;
    foot.replaceChildren();
    if (left > 0) foot.append(`${visible.length} of ${rows.length} rows `, button("show more", more));
  }
  fill();
  const head = element("thead", {}, element("tr", {}, ...heads));
  const scroll = { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": captionId };
  return element(
    "div",
    { class: "table" },
    element("p", { class: "caption", id: captionId }, caption),
    element("div", scroll, element("table", { "aria-labelledby": captionId }, head, body)),
    foot,
  );
}

/** A section with one table; none without rows. */
function listed(title, caption, columns, rows, first = 0) {
  return rows.length ? [section(title, table(idOf(title), caption, columns, rows, first))] : [];
}
