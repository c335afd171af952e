// Elements and figures. Texts of the lake are set as text, never as HTML.

/** An element; children that are texts become text nodes. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const button = (text, onclick) => element("button", { type: "button", onclick }, text);

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

/** A quantity, with all its decimals in a tooltip. */
const number = (atoms, places) => element("span", { title: exact(atoms) }, decimal(atoms, places));

/** An amount of the chosen currency, with all its decimals in a tooltip. */
function money(atoms, places) {
  const title = `${exact(atoms)} ${state.currency}`;
  const unit = element("small", { class: "unit" }, state.currency);
  return element("span", { title }, decimal(atoms, places), "\u00a0", unit);
}

/** A bar of a part, with its per cent. */
function bar(part, all) {
  const value = all === 0n ? 0 : Number((part * 1000n) / all) / 1000;
  const text = percent(part, all);
  const meter = element("meter", { min: 0, max: 1, value, "aria-label": text });
  return element("span", { class: "bar" }, meter, " " + text);
}

const idOf = (title) => "s-" + title.toLowerCase().replace(/[^a-z]+/g, "-");

function section(title, ...children) {
  const id = idOf(title);
  return element("section", { "aria-labelledby": id }, element("h2", { id }, title), ...children);
}
