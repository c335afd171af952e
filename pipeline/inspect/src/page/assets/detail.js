// One bearer of cost: over time, and how its cost came about.

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
  const option = { idle: "node", shared: "bill" }[kind] ?? kind;
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
  if (!bearer(at, "hour")) return [element("p", {}, "These cost least, and are joined here.")];
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
    kinds = { pod: "", idle: "idle node ", shared: "shared charge " },
    title = `${kinds[kind] ?? `${kind} `}${bearer(at, "name")}`;
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
    ...chart("detail", [title], (time) => over.get(time) ?? 0n, `Cost of ${title} over time`),
    ...explanation(at),
    element("p", {}, close),
  );
  dialog.showModal();
}
