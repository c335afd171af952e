// What the scripts of this folder share: a browser, and the figures that a page of `prorata report` shows.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// Installed beside, not in the project.
const require = createRequire(process.env.PLAYWRIGHT + "/");
const { chromium } = require("playwright-core");

/** Chromium of this machine, or the one that npm has. */
export async function launch() {
  if (process.env.CHROMIUM) return chromium.launch({ executablePath: process.env.CHROMIUM });
  const { default: packed } = await import(
    pathToFileURL(createRequire(process.env.PACKED_CHROMIUM + "/").resolve("@sparticuz/chromium")).href
  );
  return chromium.launch({ executablePath: await packed.executablePath(), args: packed.args });
}

/** Exact figures as shown, each in US dollars: of the tiles, and of the groups. */
export async function figures(page) {
  return page.evaluate(() => {
    const exact = (cell) => cell.querySelector("span[title]").title.match(/^(-?[\d.]+) USD$/)[1];
    const tiles = [...document.querySelectorAll("dd[data-sum]")].map((of) => [of.dataset.sum, exact(of)]);
    const captions = [...document.querySelectorAll(".caption")];
    const groupsOf = captions.find((of) => of.textContent.startsWith("Choose a group")).parentElement;
    const rows = [...groupsOf.querySelectorAll("tbody tr")];
    const groups = rows.map((row) => [row.cells[0].textContent, exact(row.cells[1])]);
    return { tiles: Object.fromEntries(tiles), groups: Object.fromEntries(groups) };
  });
}
