// Draws the page, and again when something else is chosen.

function draw() {
  const added = addUp();
  const ranked = largest(added.stacks).map(([name]) => name);
  const names = ranked.slice(0, COLORS),
    rest = ranked.slice(COLORS);
  if (rest.length) names.push("(all others)");
  const value = (time, name) =>
    name === "(all others)" && rest.length
      ? rest.reduce((sum, other) => sum + added.cells.get(other)[time], 0n)
      : (added.cells.get(name)?.[time] ?? 0n);
  const by = state.stack === "group" ? DATA.group_by : "kind";
  const label = `Cost over time in ${state.currency}, stacked by ${by}`;
  document
    .getElementById("sections")
    .replaceChildren(
      tiles(added),
      section("Cost over time", ...chart("cost", names, value, label)),
      groupTable(added),
      ...movers(added),
      ...bills(),
      ...savings(),
      ...reservations(),
      ...gpus(added),
      ...gpuSharing(),
      ...pools(),
      ...quotas(),
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
  const leftOut = Object.entries(DATA.left_out).map(([what, count]) => `${count} ${what}`);
  if (leftOut.length) {
    notices.append(element("p", {}, `What costs least is joined or left out: ${leftOut.join(", ")}.`));
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
