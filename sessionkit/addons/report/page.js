// Fills the charts and tables of the page with the rows that the reader has chosen.

const given = JSON.parse(document.getElementById("given").textContent);
const chosen = { from: document.getElementById("from"), to: document.getElementById("to"), value: document.getElementById("value") };
const DAY = 86400000;
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
    view.data(figure.data, rowsOf(figure));
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
    const spec = { ...figure.spec, datasets: { [figure.data]: rowsOf(figure) } };
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
