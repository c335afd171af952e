// Opens a page of `prorata report` with very many rows in headless Chromium, and chooses an organization: the
// figures against those that are expected, and the time next to a floor, a page of the same bytes that is
// parsed and shows nothing. Both are the best of several, in the same browser.
//
// usage: node large.mjs PAGE EXPECTED.json ROWS_MIN
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { figures, launch } from "./browser.mjs";

const TRIALS = 5;
// Times the floor. What takes a step for each row is below 4; what goes through all rows for some of them
// again is far above.
const RATIO_MAX = 8;
const [file, expectedFile, rowsMin] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(expectedFile, "utf8"));
const organization = Object.keys(expected.organizations).filter(Boolean).sort()[0];

// The same page, whose script parses the data and stops.
const whole = readFileSync(file, "utf8");
const begin = whole.lastIndexOf("<script>") + "<script>".length;
const parse =
  'JSON.parse(document.getElementById("data").textContent);document.body.dataset.parsed = "";\n/*';
const floorFile = file.replace(/\.html$/, "-floor.html");
const script = whole.slice(begin, whole.lastIndexOf("</script>")).replaceAll("*/", "* ");
// Without the policy, as it allows the page's own script alone.
const head = whole.slice(0, begin).replace(/<meta http-equiv[^>]*>/, "");
writeFileSync(floorFile, `${head}${parse}${script}*/</script></body></html>`);

const browser = await launch();
const page = await (await browser.newContext({ viewport: { width: 1200, height: 900 } })).newPage();
const complaints = [];
page.on("pageerror", (error) => complaints.push(String(error)));

/** Seconds until something is done and a frame is painted. */
async function seconds(act) {
  const began = performance.now();
  await act();
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
  return (performance.now() - began) / 1000;
}

const best = { floor: Infinity, open: Infinity, choose: Infinity };
const note = (name, took) => (best[name] = Math.min(best[name], took));
for (let trial = 0; trial < TRIALS; trial += 1) {
  note("floor", await seconds(() => page.goto(pathToFileURL(floorFile).href)));
  assert.equal(await page.locator("body[data-parsed]").count(), 1);
  note("open", await seconds(() => page.goto(pathToFileURL(file).href)));
  assert.deepEqual(await figures(page), expected.organizations[""]);
  note("choose", await seconds(() => page.locator("#organization").selectOption(organization)));
  assert.deepEqual(await figures(page), expected.organizations[organization]);
}
const rows = await page.evaluate(
  () => JSON.parse(document.getElementById("data").textContent).facts.cost.length,
);
assert.ok(rows >= Number(rowsMin), `the page has ${rows} rows`);
assert.deepEqual(complaints, []);
await browser.close();
const said = (name) => `${best[name].toFixed(2)} s (${(best[name] / best.floor).toFixed(1)})`;
console.log(`page of ${rows} rows, ${(whole.length / 1e6).toFixed(1)} MB: opened in ${said("open")}, an`);
console.log(`  organization chosen in ${said("choose")}; in parentheses, times what a page takes that only`);
console.log(`  parses the same bytes, ${best.floor.toFixed(2)} s`);
for (const name of ["open", "choose"]) {
  assert.ok(best[name] <= RATIO_MAX * best.floor, `${name}: ${best[name]} s next to ${best.floor} s`);
}
