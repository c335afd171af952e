// Reads a page of `prorata report` in headless Chromium: figures against those that are expected, the
// keyboard, both colour schemes, and that nothing is asked of anybody.
//
// usage: node page.mjs PAGE EXPECTED.json
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { figures, launch } from "./browser.mjs";

const [file, expectedFile] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(expectedFile, "utf8"));
const url = pathToFileURL(file).href;

const browser = await launch();
const context = await browser.newContext({ viewport: { width: 1200, height: 900 } });
const page = await context.newPage();
const asked = [];
const complaints = [];
page.on("request", (request) => asked.push(request.url()));
page.on("console", (message) => {
  if (["error", "warning"].includes(message.type())) complaints.push(message.text());
});
page.on("pageerror", (error) => complaints.push(String(error)));

const began = performance.now();
await page.goto(url);
await page.locator("dl.tiles").waitFor();
const seconds = (performance.now() - began) / 1000;

/** Presses Tab until an element that matches has the focus. */
async function tabTo(selector, most = 200) {
  for (let presses = 0; presses < most; presses += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate((of) => document.activeElement.matches(of), selector)) return;
  }
  assert.fail(`${selector} cannot be reached by ${most} presses of Tab`);
}

// Figures of all organizations, then of each, chosen with the keyboard alone.
assert.deepEqual(await figures(page), expected.organizations[""]);
await page.keyboard.press("Tab");
assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
await page.keyboard.press("Enter");
assert.equal(await page.evaluate(() => document.activeElement.id), "main");
await page.reload();
await tabTo("#organization");
for (const organization of Object.keys(expected.organizations).filter(Boolean).sort()) {
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.locator("#organization").inputValue(), organization);
  assert.deepEqual(await figures(page), expected.organizations[organization], organization);
}

// A group, then one of its pods with its explanation, and back.
await tabTo("#s-by-namespace ~ .table td button");
const group = await page.evaluate(() => document.activeElement.textContent);
await page.keyboard.press("Enter");
const captions = await page.locator(".caption").allTextContents();
assert.ok(captions.some((text) => text.startsWith(`${group}: `)), captions.join(" | "));
await page.reload();
await tabTo("#s-pods-and-other-costs ~ div td button");
const pod = await page.evaluate(() => document.activeElement.textContent);
await page.keyboard.press("Enter");
const dialog = page.locator("dialog[open]");
const command = await dialog.locator("code").textContent();
assert.match(command, /^prorata explain --lake .* --hour \d{4}-\d\d-\d\dT\d\d /);
// What is copied into a shell is one word, whatever tenants call things.
for (const name of ["u; touch owned #", "x$(touch owned)", "it's `id`", "a\\b \"c\" é", "*", "", "-n"]) {
  const word = await page.evaluate((text) => shellWord(text), name);
  assert.equal(execFileSync("sh", ["-c", `printf '%s|' ${word}`], { encoding: "utf8" }), `${name}|`);
}
for (const name of ["a\nb", "\u001b[2J", "\u009b2J", "a\u202eb", "a\u2028b"]) {
  assert.equal(await page.evaluate((text) => shellWord(text) === undefined, name), true);
}
// It cost most of all, so the page explains it, to the keyboard, too.
await tabTo("dialog[open] pre");
const told = await dialog.locator("pre").textContent();
const hour = command.match(/--hour (\S+)/)[1];
assert.match(told.split("\n")[0], new RegExp(` of organization .*, hour ${hour}: [\\d.]+ [A-Z]{3}$`));
assert.match(told, /\nThe same rows are in cost_allocation\//);
assert.match(told, /\nCharges, rounded once/);
await page.keyboard.press("Escape");
assert.equal(await dialog.count(), 0);
assert.equal(await page.evaluate(() => document.activeElement.textContent), pod, "the focus comes back");

// An idle node, by the group of idle ones: the command names it.
await page.reload();
await page.locator("#s-by-namespace ~ .table td button", { hasText: "(idle)" }).click();
const bearers = page.locator("#s-pods-and-other-costs ~ div td button");
await bearers.filter({ hasText: "idle node " }).first().click();
const node = await dialog.locator("code").textContent();
assert.match(node, / --node [^ ]+\/[^ ]+ --organization /);
await page.keyboard.press("Escape");

// What a screen reader is told: every table, chart and section has a name.
const nameless = await page.evaluate(() => {
  const named = (of) =>
    of.getAttribute("aria-label") || document.getElementById(of.getAttribute("aria-labelledby"));
  const bad = [...document.querySelectorAll("section, .chart, .scroll, select, input")];
  const tables = [...document.querySelectorAll(".scroll table")].filter((of) => !named(of));
  return bad.filter((of) => !named(of) && !of.closest("label")).length + tables.length;
});
assert.equal(nameless, 0, "elements without a name");

// A chart tells one time of itself, to the pointer and to the keyboard, and the parts add up to the total.
await page.reload();
await page.locator(".chart canvas").waitFor();
const tip = page.locator(".chart .tip");
assert.equal(await tip.isVisible(), false);
await page.locator(".chart").scrollIntoViewIfNeeded();
const plot = await page.locator(".chart .u-over").boundingBox();
await page.mouse.move(plot.x + plot.width / 2, plot.y + plot.height / 2);
await tip.waitFor();
const [title, total, sum] = await tip.evaluate((of) => {
  const atoms = (span) => {
    const [integer, decimals = ""] = span.title.split(" ")[0].split(".");
    return BigInt(integer + decimals.padEnd(12, "0"));
  };
  const amounts = [...of.querySelectorAll("span[title]")].map(atoms);
  const last = amounts.pop();
  return [of.querySelector("strong").textContent, last, amounts.reduce((a, b) => a + b, 0n)].map(String);
});
assert.match(title, /^\d{4}-\d\d-\d\d/);
assert.ok(total !== "0" && total === sum, `${total} is not ${sum}`);
await page.locator(".chart").focus();
await page.keyboard.press("Home");
const firstTime = await page.evaluate(() => DATA.times[0]);
assert.ok((await tip.textContent()).startsWith(firstTime));
await page.keyboard.press("ArrowRight");
assert.ok(!(await tip.textContent()).startsWith(firstTime));
await page.keyboard.press("Escape");
assert.equal(await tip.isVisible(), false);

// A heading sorts its table, by value and not by text, and then the other way around.
const sorted = page.locator("#s-by-namespace ~ .table");
const costsOf = () => sorted.locator("tbody tr td:nth-child(2) span").evaluateAll((of) =>
  of.map((span) => Number(span.title.split(" ")[0])));
const heading = sorted.locator("th", { hasText: "cost" });
assert.equal(await heading.getAttribute("aria-sort"), "descending");
const down = await costsOf();
assert.deepEqual(down, [...down].sort((a, b) => b - a));
await heading.locator("button").focus();
await page.keyboard.press("Enter");
assert.equal(await heading.getAttribute("aria-sort"), "ascending");
assert.deepEqual(await costsOf(), [...down].reverse());

// Sections that people look for, each with its figures.
for (const id of ["s-savings", "s-gpu-sharing"]) {
  assert.ok((await page.locator(`#${id} ~ .table tbody tr`).count()) > 0, id);
}

// On a telephone, the page is as wide as the view. A wider table scrolls to its last column by itself.
await page.setViewportSize({ width: 390, height: 850 });
await page.reload();
await page.locator(".chart canvas").waitFor();
const narrow = await page.evaluate(() => {
  const quotas = document.querySelector("#s-quotas ~ .table .scroll");
  quotas.scrollLeft = quotas.scrollWidth;
  const last = quotas.querySelector("th:last-child").getBoundingClientRect();
  const canvas = document.querySelector(".chart canvas").getBoundingClientRect();
  const width = document.documentElement.scrollWidth;
  return { width, isWide: quotas.scrollWidth > quotas.clientWidth, last: last.right, canvas: canvas.right };
});
assert.equal(narrow.width, 390, "the page scrolls sideways");
assert.ok(narrow.isWide && narrow.last <= 390 && narrow.canvas <= 390, JSON.stringify(narrow));
await page.setViewportSize({ width: 1200, height: 900 });

// A script that got into the page would not run: the policy names the page's own by its digest.
await page.evaluate(() => {
  const script = document.createElement("script");
  script.textContent = "window.owned = true";
  document.body.append(script);
});
assert.equal(await page.evaluate(() => window.owned), undefined);
assert.equal(complaints.length, 1, complaints.join("; "));
assert.match(complaints[0], /Content Security Policy/);
complaints.pop();

// Both colour schemes differ, and text stands out in both; print keeps the figures.
const colors = {};
for (const scheme of ["light", "dark"]) {
  await page.emulateMedia({ colorScheme: scheme });
  colors[scheme] = await page.evaluate(() => {
    const luminance = (color) => {
      const parts = color.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255);
      const linear = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
      return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const style = getComputedStyle(document.body);
    const canvas = getComputedStyle(document.documentElement).backgroundColor;
    const clear = style.backgroundColor === "rgba(0, 0, 0, 0)";
    const [text, ground] = [style.color, clear ? canvas : style.backgroundColor].map(luminance);
    const [high, low] = text > ground ? [text, ground] : [ground, text];
    return { ground, contrast: (high + 0.05) / (low + 0.05) };
  });
  assert.ok(colors[scheme].contrast >= 7, `${scheme}: ${JSON.stringify(colors[scheme])}`);
}
assert.ok(colors.light.ground > 0.8 && colors.dark.ground < 0.2, JSON.stringify(colors));
await page.emulateMedia({ media: "print" });
assert.ok(await page.locator("dl.tiles").isVisible());

assert.deepEqual(new Set(asked), new Set([url]), "the page asks for itself alone");
assert.deepEqual(complaints, []);
await browser.close();
const count = Object.keys(expected.organizations).length - 1;
console.log(`page: ${count} organizations, shown in ${seconds.toFixed(2)} s`);
