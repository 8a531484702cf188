// Fills the charts and tables of the page with the rows that the reader has chosen.

const given = JSON.parse(document.getElementById("given").textContent);
const chosen = { from: document.getElementById("from"), to: document.getElementById("to"), value: document.getElementById("value") };
const DAY = 86400000;
const STANDS_ALONE = new Set(["longest", "busiest"]);
const views = new Map();

function allRows(name) {
  const columns = given.tables[name];
  const names = Object.keys(columns);
  const count = names.length ? columns[names[0]].length : 0;
  return Array.from({ length: count }, (_, place) =>
    Object.fromEntries(names.map((column) => [column, columns[column][place]])));
}

const tables = Object.fromEntries(Object.keys(given.tables).map((name) => [name, allRows(name)]));

function isChosen(row) {
  const from = chosen.from.value ? Date.parse(chosen.from.value) : -Infinity;
  const to = chosen.to.value ? Date.parse(chosen.to.value) + DAY : Infinity;
  const at = row.at ?? row.began;
  return (at === undefined || (at >= from && at < to))
    && (!chosen.value.value || row.value === undefined || row.value === chosen.value.value);
}

function rowsOf(figure) {
  return tables[figure.data].filter((row) =>
    isChosen(row) && (!figure.where || row[figure.where[0]] === figure.where[1]));
}

function added(rows, by, of) {
  const sums = new Map();
  for (const row of rows) {
    const key = JSON.stringify(by.map((name) => row[name]));
    sums.set(key, (sums.get(key) ?? 0) + (row[of] ?? 0));
  }
  return [...sums].map(([key, sum]) => [...JSON.parse(key), sum]);
}

// Where the pages of each step lie, one above another, and the bands between them.
function flowOf(rows) {
  const links = added(rows, ["step", "page", "next"], "sessions")
    .map(([step, page, next, sessions]) => ({ step, page, next, sessions }));
  const steps = [...new Set(links.map((link) => link.step))].sort((a, b) => a - b);
  const nodes = [];
  const heights = new Map();
  const sizeOf = (step, page) => Math.max(
    links.filter((l) => l.step === step && l.page === page).reduce((sum, l) => sum + l.sessions, 0),
    links.filter((l) => l.step === step - 1 && l.next === page).reduce((sum, l) => sum + l.sessions, 0));
  const whole = links.filter((l) => l.step === steps[0]).reduce((sum, l) => sum + l.sessions, 0);
  for (const step of [...steps, (steps.at(-1) ?? 0) + 1]) {
    const names = new Set([
      ...links.filter((l) => l.step === step).map((l) => l.page),
      ...links.filter((l) => l.step === step - 1 && l.next !== null).map((l) => l.next)]);
    let top = 0;
    for (const page of [...names].sort((a, b) => sizeOf(step, b) - sizeOf(step, a))) {
      const sessions = sizeOf(step, page);
      nodes.push({ page, sessions, x: step, right: step + 0.04, high: -top, low: -(top + sessions), middle: -(top + sessions / 2) });
      heights.set(`${step} ${page}`, { out: top, into: top });
      top += sessions + whole * 0.02;
    }
  }
  const bands = [];
  for (const link of links) {
    if (link.next === null) continue;
    const from = heights.get(`${link.step} ${link.page}`);
    const to = heights.get(`${link.step + 1} ${link.next}`);
    const ends = [[link.step + 0.04, from.out], [link.step + 0.4, from.out], [link.step + 0.64, to.into], [link.step + 1, to.into]];
    for (const [x, y] of ends) {
      bands.push({ x, high: -y, low: -(y + link.sessions), link: `${link.step} ${link.page} ${link.next}`, page: link.page, next: link.next, sessions: link.sessions });
    }
    from.out += link.sessions;
    to.into += link.sessions;
  }
  return { nodes, bands };
}

function shown(name, cell) {
  if (cell === null) return "(end)";
  if (name === "at") return new Date(cell).toISOString().slice(0, 16).replace("T", " ");
  return typeof cell === "number" ? cell.toLocaleString("en", { maximumFractionDigits: 1 }) : String(cell);
}

function fill(table, names, rows) {
  const line = (cells, tag) => {
    const row = document.createElement("tr");
    cells.forEach((cell, place) => {
      const made = document.createElement(tag);
      if (tag === "th") made.scope = "col";
      made.textContent = tag === "th" ? cell : shown(names[place], cell);
      if (typeof cell === "number" && names[place] !== "at") made.className = "number";
      row.append(made);
    });
    return row;
  };
  table.replaceChildren(line(names, "th"), ...rows.slice(0, 400).map((row) => line(row, "td")));
}

function fillFacts() {
  const totals = tables.totals.filter(isChosen);
  const sum = (name) => totals.reduce((all, row) => all + (row[name] ?? 0), 0);
  const sessions = sum("sessions");
  const share = (name) => totals.some((row) => row[name] !== null)
    ? (sum(name) / (sessions || 1)).toLocaleString("en", { style: "percent", maximumFractionDigits: 1 }) : null;
  const facts = [["sessions", sessions.toLocaleString("en")], ["new users", sum("new").toLocaleString("en")],
    ["engaged", share("engaged")], ["bounces", share("bounced")]];
  document.getElementById("facts").replaceChildren(...facts.filter(([, fact]) => fact !== null).map(([name, fact]) => {
    const item = document.createElement("li");
    const strong = document.createElement("b");
    strong.textContent = fact;
    item.append(strong, name);
    return item;
  }));
}

function fillQuantiles() {
  const table = document.getElementById("quantiles");
  if (!table) return;
  const rows = tables.quantiles.filter((row) => !chosen.value.value || row.value === chosen.value.value);
  const levels = [...new Set(rows.map((row) => row.quantile))];
  const heads = [...new Set(rows.map((row) => JSON.stringify([row.value, row.of])))];
  fill(table, ["", "of", ...levels.map((level) => `${level * 100} %`)], heads.map((head) => {
    const [value, of] = JSON.parse(head);
    const found = rows.filter((row) => row.value === value && row.of === of);
    return [value, of === "length" ? "seconds" : of, ...found.map((row) => row.amount)];
  }));
}

function dataOf(figure) {
  const rows = rowsOf(figure);
  return figure.id === "flow" ? flowOf(rows) : { [figure.data]: rows };
}

function fillTables() {
  fillFacts();
  fillQuantiles();
  for (const figure of given.figures) {
    const names = [...figure.by, figure.of];
    fill(document.getElementById(`table-${figure.id}`), names, added(rowsOf(figure), figure.by, figure.of));
  }
}

async function refresh() {
  fillTables();
  for (const figure of given.figures) {
    const view = views.get(figure.id);
    for (const [name, rows] of Object.entries(dataOf(figure))) view.data(name, rows);
    await view.runAsync();
  }
  tellReady();
}

// Counts how often the page was drawn, for whoever waits for it.
function tellReady() {
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
}

function themed() {
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  const line = getComputedStyle(document.documentElement).getPropertyValue("--line").trim();
  const words = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
  return {
    background: null, font: "system-ui, sans-serif", view: { stroke: null },
    axis: { ...words, gridColor: line, domainColor: line, tickColor: line },
    legend: { ...words, orient: "bottom", columns: 3 }, text: { color: ink },
  };
}

async function draw() {
  fillTables();
  const config = themed();
  for (const figure of given.figures) {
    const spec = { ...figure.spec, datasets: dataOf(figure) };
    const { view } = await vegaEmbed(`#chart-${figure.id}`, spec, { actions: false, renderer: "svg", config, ast: true });
    views.set(figure.id, view);
  }
  tellReady();
}

// What is chosen stands in the address, so that a link shows it again.
function remember() {
  const kept = Object.entries(chosen).filter(([, input]) => input.value).map(([name, input]) => [name, input.value]);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

for (const value of given.values) chosen.value.append(new Option(value, value));
for (const [name, kept] of new URLSearchParams(location.hash.slice(1))) {
  if (name in chosen) chosen[name].value = kept;
}
const form = document.querySelector("form");
const choose = () => { remember(); return refresh(); };
form.addEventListener("change", choose);
form.addEventListener("reset", () => setTimeout(choose));
form.addEventListener("submit", (event) => event.preventDefault());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
await draw();
