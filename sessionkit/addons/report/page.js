// Shows the counts of the page for the days and values that the reader chooses.
//
// All figures come from `figures(from, to, choice)`: sums over cells (a unit of time, and a value of
// each dimension), and users, who don't add up. The sections below it only put them into tables.

const given = JSON.parse(document.getElementById("given").textContent);
const DAY = 86400000, HOUR = 3600000;
const PER_DAY = DAY / given.unit, DAYS = given.units / PER_DAY;
const OTHER = -1, NONE = -2, MORE = -3;
const element = (id) => document.getElementById(id);
const dimensions = [given.columns.dimension, given.columns.second_dimension].filter(Boolean);

// ---- what is counted -------------------------------------------------------------------------

// A choice is the place of a value of each dimension; null for all.
const fits = (row, choice) => choice.every((place, n) => place === null || row[`d${n}`] === place);

function rowsOf(columns) {
  const names = Object.keys(columns).filter((name) => columns[name].length);
  return names.length ? columns[names[0]].map((_, n) => Object.fromEntries(names.map((name) => [name, columns[name][n]]))) : [];
}

const cells = rowsOf(given.cells);
const cellsAt = Array.from({ length: given.units }, () => []);
for (const cell of cells) cellsAt[cell.t].push(cell);

const key = (choice) => choice.map((place) => place ?? "all").join();
function byChoice(columns, time) {
  const found = new Map();
  for (const row of rowsOf(columns)) {
    const of = key(dimensions.map((_, n) => row[`d${n}`]));
    if (!found.has(of)) found.set(of, new Map());
    found.get(of).set(row[time], row.counts);
  }
  return found;
}
const usersOf = byChoice(given.users, "t"), cohortsOf = byChoice(given.cohorts, "first");

function* chosenCells(from, to, choice) {
  for (let t = Math.max(from, 0); t <= Math.min(to, given.units - 1); t += 1) {
    for (const cell of cellsAt[t]) if (fits(cell, choice)) yield cell;
  }
}

// Users of some days are those whose last time before is before these days. Null: it isn't known.
function users(from, to, choice) {
  const most = given.gaps[choice.map((place, n) => (place === null ? "" : `d${n}`)).join("")];
  if (most !== null && from > 0 && to - from > most) return null;
  let found = 0;
  const times = usersOf.get(key(choice));
  for (let t = from; times && t <= to; t += 1) {
    const counts = times.get(t) ?? [];
    for (let n = 0; n < counts.length; n += 2) if (counts[n] === 0 || t - counts[n] < from) found += counts[n + 1];
  }
  return found;
}

function figures(from, to, choice) {
  const sums = { sessions: 0, longest: 0, most_events: 0 };
  for (const cell of chosenCells(from, to, choice)) {
    for (const [name, value] of Object.entries(cell)) {
      if (name === "longest" || name === "most_events") sums[name] = Math.max(sums[name], value);
      else if (typeof value === "number") sums[name] = (sums[name] ?? 0) + value;
    }
  }
  return { ...sums, users: users(from, to, choice) };
}

// How often each value is there, of a list in the cells that has values and counts in turn.
function tally(name, { from, to, choice }) {
  const found = new Map();
  for (const cell of chosenCells(from, to, choice)) {
    const counts = cell[name];
    for (let n = 0; n < counts.length; n += 2) found.set(counts[n], (found.get(counts[n]) ?? 0) + counts[n + 1]);
  }
  return found;
}

const ratio = (part, whole) => (whole ? (part ?? 0) / whole : null);
const total = (counts) => [...counts.values()].reduce((sum, count) => sum + count, 0);

const lengthName = given.ends_with === "session_end" ? "Length with gap" : "Length";
const meanLength = (sums) => ratio(sums.length, sums.length_known);

const measures = [
  { id: "sessions", name: "Sessions", kind: "count", of: (sums) => sums.sessions },
  { id: "users", name: "Users", kind: "count", of: (sums) => sums.users },
  { id: "engaged_time", name: "Engaged time", kind: "time", is: given.columns.engaged_time, of: (sums) => ratio(sums.engaged_time, sums.engaged_time_known) },
  { id: "length", name: lengthName, kind: "time", is: !given.columns.engaged_time, of: meanLength },
  { id: "converted", name: "Conversion", kind: "share", is: given.columns.converted || given.columns.funnel.length, of: (sums) => ratio(sums.converted, sums.sessions) },
  { id: "length", name: lengthName, kind: "time", is: given.columns.engaged_time, of: meanLength },
  { id: "engaged", name: "Engaged sessions", kind: "share", is: given.columns.engaged, of: (sums) => ratio(sums.engaged, sums.sessions) },
  { id: "bounced", name: "Bounces", kind: "share", is: given.columns.bounce || given.columns.events, less: true, of: (sums) => ratio(sums.bounced, sums.sessions) },
  { id: "is_new", name: "New users", kind: "count", of: (sums) => sums.is_new ?? 0 },
  { id: "events", name: "Events a session", kind: "number", is: given.columns.events, of: (sums) => ratio(sums.events, sums.events_known) },
].filter((measure) => !("is" in measure) || measure.is);

// ---- how values look -------------------------------------------------------------------------

const LOCALE = "en";
const decimal = (value, digits) => value.toLocaleString(LOCALE, { maximumFractionDigits: digits });
const tenths = (value) => value.toLocaleString(LOCALE, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const formats = {
  text: (value) => value,
  count: (value) => decimal(value, 0),
  number: (value) => decimal(value, 2),
  share: (value) => `${tenths(value * 100)}%`,
  change: (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${tenths(Math.abs(value) * 100)}%`,
  code: (value) => value,
  time: span,
  moment: (value) => new Date(value).toISOString().slice(0, 16).replace("T", " "),
  heat: (value) => `${decimal(value * 100, 0)}%`,
};

function span(ms) {
  const s = Math.round(ms / 1000), two = (value) => String(value).padStart(2, "0");
  if (ms < 10000) return ms % 1000 ? `${decimal(ms / 1000, 1)}s` : `${ms / 1000}s`;
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${two(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86400)}d ${two(Math.floor((s % 86400) / 3600))}h`;
}

// A label of ours is an object, so that a real value of the same text is another one.
// That of all the rest has no bar: it would make the bars of the others short.
const ours = (text, isRest = false) => ({ text, isRest });
function label(labels, place, rest = "all others") {
  if (place === NONE) return ours("no value");
  if (place === OTHER) return ours(rest, true);
  return labels[place] === "" ? ours("empty text") : labels[place];
}
const plain = (value) => (typeof value === "object" && value !== null ? value.text : value);

const startOf = (t) => given.first + t * given.unit;
const date = (t) => new Date(startOf(t)).toISOString().slice(0, 10);
const shownDate = (ms, year) => new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC", ...(year ? { year: "numeric" } : {}) });
const shownDays = (from, to) => (to - from < PER_DAY ? shownDate(startOf(from), true) : `${shownDate(startOf(from), true)} to ${shownDate(startOf(to), true)}`);

// ---- tables ----------------------------------------------------------------------------------

const tables = new Map();

function made(tag, content, attributes = {}) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...[content].flat().filter((one) => one !== null && one !== undefined));
  return node;
}

// Columns have a title and a kind; one may have a bar, of which each row gives the share of the first.
function table(id, title, columns, rows, { pick, isLong } = {}) {
  const place = element(id);
  place.hidden = !rows.length;
  tables.set(id, { columns, rows });
  const head = made("tr", columns.map((column) => made("th", column.title, { scope: "col", className: column.kind })));
  const barred = columns.findIndex((column) => column.bar);
  const barOf = (row) => ((row[0].of ?? row[0]).isRest ? 0 : row[barred] ?? 0);
  const most = Math.max(...rows.map(barOf));
  const body = rows.map((row, n) => made("tr", columns.map((column, c) => {
    const cell = made("td", shown(column, row[c], pick && c === 0 ? () => pick(n) : null), { className: column.kind });
    if (column.indent) cell.style.paddingLeft = `${0.5 + 1.1 * row[c].depth}rem`;
    if (c === 0 && barOf(row)) {
      cell.classList.add("bar");
      cell.style.setProperty("--share", `${(100 * barOf(row)) / most}%`);
    }
    if (column.kind === "code") cell.title = row[c];
    if (column.kind === "heat" && row[c] !== null) cell.style.setProperty("--share", `${100 * row[c]}%`);
    return cell;
  })));
  const scroll = made("div", made("table", [made("thead", head), made("tbody", body)]), { className: isLong ? "scroll long" : "scroll", tabIndex: 0 });
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  place.querySelector(".body").replaceChildren(...(rows.length ? [scroll] : []));
  addDownload(place, id, title);
}

function shown(column, value, pick) {
  if (value === null || value === undefined) return column.kind === "heat" ? "" : "–";
  const text = column.indent && value.depth ? "↳\u00a0" : "";
  const of = column.indent ? value.of : value;
  const node = typeof of === "object" ? made("em", of.text) : formats[column.kind](of);
  if (!pick) return [text, node];
  const button = made("button", node, { type: "button", title: "Show only these sessions" });
  button.addEventListener("click", pick);
  return button;
}

function addDownload(place, id, title) {
  if (place.querySelector(".csv")) return;
  const button = made("button", "CSV", { type: "button", className: "csv" });
  button.setAttribute("aria-label", `CSV: ${title}`);
  button.addEventListener("click", () => {
    const link = made("a", null, { href: URL.createObjectURL(new Blob([csv(id)], { type: "text/csv" })), download: `${id}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  let head = place.querySelector(".head div");
  if (!head) {
    head = made("div", null);
    const heading = place.querySelector("h3"), line = made("div", null, { className: "head" });
    heading.replaceWith(line);
    line.append(heading, head);
  }
  head.append(button);
}

// Times are seconds. Text that a spreadsheet would take for a formula gets a sign before it.
function csv(id) {
  const { columns, rows } = tables.get(id);
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const cell = (column, value) => {
    if (value === null || value === undefined) return "";
    if (column.kind === "time") return String(value / 1000);
    if (column.kind === "moment") return new Date(value).toISOString();
    const of = plain(column.indent ? value.path : value);
    return typeof of === "number" ? String(of) : quoted(of.replace(/^(?=[=+\-@\t\r])/, "'"));
  };
  const heads = columns.map((column) => quoted(column.kind === "time" ? `${column.title} in s` : column.title));
  return [heads, ...rows.map((row) => columns.map((column, n) => cell(column, row[n])))].map((line) => `${line.join()}\r\n`).join("");
}

// ---- what is chosen --------------------------------------------------------------------------

const spans = [1, 7, 28, 90].filter((days) => days < DAYS);
const state = { from: 0, to: given.units - 1, choice: dimensions.map(() => null), measure: "sessions", by: 0, each: "" };

function chooseDays(days) {
  state.to = given.units - 1;
  state.from = days ? Math.max(0, given.units - days * PER_DAY) : 0;
}

// The last days of which there are as many before, so that there is something to compare with.
chooseDays([28, 7].find((days) => 2 * days <= DAYS));

const before = () => {
  const length = state.to - state.from + 1;
  return state.from >= length ? { from: state.from - length, to: state.from - 1, choice: state.choice } : null;
};

// In the address, a real value has `=` before it: a real `other` isn't ours.
const nameOf = (n, place) => (place === null ? "" : place === OTHER ? "other" : place === NONE ? "none" : `=${given.values[n][place]}`);
const placeOf = (n, name) => {
  if (name === "other") return OTHER;
  if (name === "none") return NONE;
  const place = given.values[n].indexOf(name.slice(1));
  return name.startsWith("=") && place >= 0 ? place : null;
};
const placesOf = (n) => [...new Set(cells.map((cell) => cell[`d${n}`]))].sort((a, b) => (a < 0) - (b < 0) || (a < 0 ? b - a : a - b));
const valueLabel = (n, place) => label(given.values[n], place, `${formats.count(given.rest[n])} other values`);

function unitOf(text, isEnd) {
  const days = Math.round((Date.parse(text) - given.first) / DAY);
  if (Number.isNaN(days)) return isEnd ? given.units - 1 : 0;
  const day = Math.min(Math.max(days, 0), DAYS - 1);
  return isEnd ? (day + 1) * PER_DAY - 1 : day * PER_DAY;
}

function remember() {
  const kept = { from: date(state.from), to: date(state.to) };
  state.choice.forEach((place, n) => { if (place !== null) kept[["first", "second"][n]] = nameOf(n, place); });
  if (state.measure !== "sessions") kept.measure = state.measure;
  if (state.by) kept.by = state.by;
  if (state.each) kept.each = state.each;
  // In a frame of a notebook there is no address to write to.
  try { history.replaceState(null, "", `#${new URLSearchParams(kept)}`); } catch { /* nothing is remembered */ }
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  if (kept.has("from")) state.from = unitOf(kept.get("from"), false);
  if (kept.has("to")) state.to = unitOf(kept.get("to"), true);
  state.to = Math.max(state.to, state.from + PER_DAY - 1);
  state.choice = dimensions.map((_, n) => placeOf(n, kept.get(["first", "second"][n]) ?? ""));
  state.measure = measures.find((one) => one.id === kept.get("measure"))?.id ?? "sessions";
  state.by = kept.get("by") === "1" && dimensions.length > 1 ? 1 : 0;
  state.each = kept.get("each") ?? "";
}

// ---- the first screen ------------------------------------------------------------------------

function showChoice() {
  element("from").value = date(state.from);
  element("to").value = date(state.to);
  for (const id of ["from", "to"]) Object.assign(element(id), { min: date(0), max: date(given.units - 1) });
  dimensions.forEach((_, n) => { element(`choice${n}`).value = nameOf(n, state.choice[n]); });
  for (const button of document.querySelectorAll(".presets button")) {
    const days = Number(button.dataset.days);
    const from = days ? given.units - days * PER_DAY : 0;
    button.setAttribute("aria-pressed", String(state.to === given.units - 1 && state.from === from));
  }
  const was = before(), length = (state.to - state.from + 1) / PER_DAY;
  const days = `${formats.count(length)} ${length === 1 ? "day" : "days"}: ${shownDays(state.from, state.to)}`;
  element("period").textContent = was ? `${days}, against the ${length === 1 ? "day" : `${formats.count(length)} days`} before: ${shownDays(was.from, was.to)}.`
    : `${days}. The rows don't reach back as far again, so there is no period before to compare with.`;
}

function change(measure, now, was) {
  if (now === null || was === null || was === undefined) return null;
  const isShare = measure.kind === "share";
  const moved = isShare ? (now - was) * 100 : was ? ((now - was) / was) * 100 : null;
  if (moved === null) return null;
  const size = decimal(Math.abs(moved), Math.abs(moved) < 10 ? 1 : 0);
  const is = size === "0" ? "" : (moved > 0) === !measure.less ? "up" : "down";
  return made("span", `${size === "0" ? "" : moved > 0 ? "▲ " : "▼ "}${size}${isShare ? " pts" : "%"}`, { className: `change ${is}` });
}

function showCards() {
  const was = before();
  const now = figures(state.from, state.to, state.choice), then = was && figures(was.from, was.to, was.choice);
  element("cards").replaceChildren(...measures.map((measure) => {
    const value = measure.of(now), old = then && measure.of(then);
    const card = made("button", [
      made("span", measure.name),
      made("b", value === null ? "–" : formats[measure.kind](value)),
      change(measure, value, old),
      then && made("span", `before: ${old === null ? "–" : formats[measure.kind](old)}`),
    ], { type: "button" });
    card.dataset.measure = measure.id;
    card.setAttribute("aria-pressed", String(measure.id === state.measure));
    card.addEventListener("click", () => choose({ measure: measure.id }));
    return card;
  }));
}

// The parts of the chosen time: whole units, days, weeks or months, cut at the first and last day.
function parts(each) {
  const found = [];
  for (let t = state.from; t <= state.to;) {
    const at = new Date(startOf(t));
    const next = { hour: t + 1, day: t + PER_DAY, week: t + (7 - ((at.getUTCDay() + 6) % 7)) * PER_DAY,
      month: (Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1) - given.first) / given.unit }[each];
    const whole = { hour: true, day: true, week: at.getUTCDay() === 1, month: at.getUTCDate() === 1 }[each];
    found.push({ from: t, to: Math.min(next - 1, state.to), isWhole: whole && next - 1 <= state.to });
    t = next;
  }
  return found;
}

function eachOf() {
  const days = (state.to - state.from + 1) / PER_DAY;
  const possible = ["hour", "day", "week", "month"].filter((each) => (each !== "hour" || given.unit === HOUR) && (days > { hour: 0, day: 1, week: 7, month: 31 }[each] || each === "day"));
  const usual = given.unit === HOUR ? "hour" : days <= 200 ? "day" : days <= 1000 ? "week" : "month";
  const each = possible.includes(state.each) ? state.each : usual;
  element("each").replaceChildren(...possible.map((one) => new Option(one, one, false, one === each)));
  return each;
}

function showTime() {
  const measure = measures.find((one) => one.id === state.measure), each = eachOf(), was = before();
  const length = state.to - state.from + 1;
  const bars = parts(each).map((part) => ({
    ...part,
    now: measure.of(figures(part.from, part.to, state.choice)),
    was: was && measure.of(figures(part.from - length, part.to - length, state.choice)),
  }));
  const name = (part) => (each === "hour" ? formats.moment(startOf(part.from)) : each === "month" && part.isWhole ? date(part.from).slice(0, 7) : date(part.from) + (part.to - part.from >= PER_DAY ? ` to ${date(part.to)}` : ""));
  element("time").querySelector("h2").textContent = `${measure.name} by ${each}`;
  const cut = bars.some((bar) => !bar.isWhole) ? ` Pale: only a part of the ${each} is chosen.` : "";
  element("time").querySelector(".note").replaceChildren(made("span", "chosen days", { className: "key" }), "\u2003", ...(was ? [made("span", "as long before", { className: "key old" }), "\u2003"] : []), cut);
  draw(element("time").querySelector(".chart"), bars, measure, each, name);
  table("time", `${measure.name} by ${each}`, [
    { title: each === "hour" ? "Hour" : "Days", kind: "text" },
    { title: measure.name, kind: measure.kind },
    ...(was ? [{ title: "As long before", kind: measure.kind }] : []),
  ], bars.map((bar) => [name(bar), bar.now, ...(was ? [bar.was] : [])]), { isLong: true });
}

function draw(place, bars, measure, each, name) {
  const WIDTH = Math.max(place.clientWidth, 280), HEIGHT = WIDTH < 500 ? 180 : 230, LEFT = 48, BOTTOM = 22, TOP = 8;
  const svg = (tag, attributes, content = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [at, value] of Object.entries(attributes)) node.setAttribute(at, value);
    node.textContent = content;
    return node;
  };
  const most = Math.max(0, ...bars.flatMap((bar) => [bar.now ?? 0, bar.was ?? 0]));
  const ticks = nice(most, measure.kind), top = ticks.at(-1) || 1;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const step = (WIDTH - LEFT) / bars.length, width = Math.max(step * (step > 6 ? 0.8 : 0.95), 0.8);
  const x = (n) => LEFT + step * n;
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${measure.name} by ${each}; the table below has the same figures` });
  for (const tick of ticks) {
    chart.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(tick), y2: y(tick) }),
      svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, formats[measure.kind](tick)));
  }
  bars.forEach((bar, n) => {
    if (bar.now) chart.append(svg("rect", { class: bar.isWhole ? "now" : "now part", x: x(n) + (step - width) / 2, y: y(bar.now), width, height: y(0) - y(bar.now) }));
  });
  // A step where there is a figure, and nothing where there is none.
  const steps = bars.map((bar, n) => (bar.was === null ? "" : `${bars[n - 1]?.was == null ? "M" : "L"}${x(n)} ${y(bar.was)}h${step}`)).join("");
  chart.append(svg("path", { class: "was", d: steps }));
  const text = (part) => (each === "hour" && part.from % 24 ? new Date(startOf(part.from)).toISOString().slice(11, 16) : each === "month" ? new Date(startOf(part.from)).toLocaleDateString("en-GB", { month: "short", year: "2-digit", timeZone: "UTC" }) : shownDate(startOf(part.from)));
  const fewest = Math.ceil(62 / step);
  const every = each === "hour" ? [1, 2, 3, 6, 12, 24].find((hours) => hours >= fewest) : fewest;
  bars.forEach((bar, n) => {
    if (n % every === 0 && x(n) + 40 < WIDTH) chart.append(svg("text", { x: x(n) + (step > 62 ? step / 2 : 0), y: HEIGHT - 6, "text-anchor": step > 62 ? "middle" : "start" }, text(bar)));
  });
  const tip = made("div", null, { className: "tip", hidden: true });
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * WIDTH;
    const bar = bars[Math.floor((at - LEFT) / step)];
    tip.hidden = !bar;
    if (!bar) return;
    const said = (value) => (value === null ? "–" : formats[measure.kind](value));
    tip.textContent = `${name(bar)}: ${said(bar.now)}${bar.was === null ? "" : `, before ${said(bar.was)}`}`;
    const left = event.clientX - box.left;
    Object.assign(tip.style, left < box.width / 2 ? { left: `${left + 12}px`, right: "auto" } : { right: `${box.width - left + 12}px`, left: "auto" });
  });
  chart.addEventListener("pointerleave", () => { tip.hidden = true; });
  place.replaceChildren(chart, tip);
}

// Round ticks from zero: 1, 2 or 5 of a power of ten, or what clocks have.
function nice(most, kind) {
  if (!most) return [0];
  const clock = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map((s) => s * 1000);
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const size = (kind === "time" && clock.find((one) => one >= most / 4)) || [1, 2, 5, 10].map((one) => one * power).find((one) => one >= most / 4);
  const step = kind === "count" ? Math.max(size, 1) : size;
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, n) => n * step);
}

// ---- the sections ----------------------------------------------------------------------------

function showBy() {
  const heading = element("by-head");
  heading.hidden = !dimensions.length;
  element("by").hidden = !dimensions.length;
  if (!dimensions.length) return;
  const n = state.by, all = figures(state.from, state.to, state.choice), was = before();
  const rows = placesOf(n).filter((place) => state.choice[n] === null || place === state.choice[n]).map((place) => {
    const choice = state.choice.with(n, place);
    return { place, now: figures(state.from, state.to, choice), was: was && figures(was.from, was.to, choice) };
  }).filter((row) => row.now.sessions || row.was?.sessions).sort((a, b) => b.now.sessions - a.now.sessions);
  const wanted = ["users", "engaged_time", "length", "converted", "engaged", "bounced"];
  const columns = measures.filter((one) => wanted.includes(one.id));
  const gain = (row) => (row.was?.sessions ? (row.now.sessions - row.was.sessions) / row.was.sessions : null);
  table("by", `By ${dimensions[n]}`, [
    { title: dimensions[n], kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" },
    ...(was ? [{ title: "Change", kind: "change" }] : []),
    ...columns.map((measure) => ({ title: measure.name, kind: measure.kind })),
  ], rows.map((row) => [valueLabel(n, row.place), row.now.sessions, ratio(row.now.sessions, all.sessions), ...(was ? [gain(row)] : []), ...columns.map((measure) => measure.of(row.now))]), {
    pick: (line) => choose({ choice: state.choice.with(n, state.choice[n] === null ? rows[line].place : null) }),
  });
  element("by").querySelector(".note").textContent = `A click on a value shows only its sessions everywhere. A user of two values counts under both.`;
}

function showFunnel() {
  const steps = given.columns.funnel, sums = figures(state.from, state.to, state.choice);
  const reached = [sums.sessions, ...steps.map((_, n) => sums[`reached_${n}`] ?? 0)];
  table("funnel", "The funnel", [
    { title: "Step", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Of all", kind: "share" },
    { title: "Of the step before", kind: "share" }, { title: "Lost here", kind: "count" },
  ], steps.length ? [ours("all sessions"), ...steps].map((step, n) => [step, reached[n], ratio(reached[n], reached[0]), n ? ratio(reached[n], reached[n - 1]) : null, n ? reached[n - 1] - reached[n] : null]) : []);
}

const pagesNamed = (role) => (given.pages.length >= given.pages_shown[role] ? `Of all pages, the ${formats.count(given.pages_shown[role])} most frequent are told apart.` : "");
const page = (place) => label(given.pages, place, "all other pages");

// The first pages as a tree: each node has the sessions that came so far, and those that left there.
function showWays() {
  const root = { count: 0, left: 0, next: new Map() };
  for (const [way, count] of tally("ways", state)) {
    let node = root;
    node.count += count;
    for (const place of given.ways[way].filter((one) => one !== MORE)) {
      if (!node.next.has(place)) node.next.set(place, { count: 0, left: 0, next: new Map() });
      node = node.next.get(place);
      node.count += count;
    }
    if (given.ways[way].at(-1) !== MORE) node.left += count;
  }
  const rows = [];
  const widths = [5, 3, 2, 2];
  const visit = (node, depth, path) => {
    const next = [...node.next].sort((a, b) => (a[0] === OTHER) - (b[0] === OTHER) || b[1].count - a[1].count);
    const named = next.filter(([place, child]) => place !== OTHER && child.count >= root.count / 200).slice(0, widths[depth]);
    for (const [place, child] of named) {
      const so = [...path, plain(page(place))];
      rows.push([{ depth, of: page(place), path: so.join(" → ") }, child.count, ratio(child.count, root.count), ratio(child.count, node.count), child.left, ratio(child.left, child.count)]);
      if (depth < 3) visit(child, depth + 1, so);
    }
    const rest = next.map(([, child]) => child.count).reduce((a, b) => a + b, 0) - named.reduce((sum, [, child]) => sum + child.count, 0);
    const left = next.map(([, child]) => child.left).reduce((a, b) => a + b, 0) - named.reduce((sum, [, child]) => sum + child.left, 0);
    if (rest && (depth === 0 || rest >= root.count / 200)) rows.push([{ depth, of: ours("all other pages", true), path: [...path, "all other pages"].join(" → ") }, rest, ratio(rest, root.count), ratio(rest, node.count), left, ratio(left, rest)]);
  };
  visit(root, 0, []);
  table("ways", "Ways through", [
    { title: "Page", kind: "text", indent: true }, { title: "Sessions", kind: "count", bar: true }, { title: "Of all", kind: "share" },
    { title: "Of the page before", kind: "share" }, { title: "Left here", kind: "count" }, { title: "Drop-off", kind: "share" },
  ], root.count ? rows : [], { isLong: true });
  const missing = figures(state.from, state.to, state.choice).sessions - root.count;
  element("ways").querySelector(".note").textContent = `The first four pages of a path, the most frequent ones at each step.${missing ? ` ${formats.count(missing)} sessions have no path.` : ""} ${pagesNamed("path")}`;
}

function showEnds() {
  for (const role of ["entry", "exit"]) {
    const counts = tally(role, state), all = total(counts);
    const named = [...counts].filter(([place]) => place !== OTHER).sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 10);
    const rest = all - named.reduce((sum, [, count]) => sum + count, 0);
    const missing = figures(state.from, state.to, state.choice).sessions - all;
    const rows = [...named.map(([place, count]) => [page(place), count]), ...(rest ? [[ours("all other pages", true), rest]] : [])];
    table(role, `${role} pages`, [{ title: "Page", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" }],
      rows.map(([name, count]) => [name, count, ratio(count, all)]));
    element(role).querySelector(".note").textContent = [missing ? `${formats.count(missing)} sessions have no page.` : "", pagesNamed(role)].join(" ");
  }
}

function showCohorts() {
  const monday = Math.round(given.first / DAY + 3) % 7;
  const week = (t) => Math.floor((Math.floor(t / PER_DAY) + monday) / 7);
  const start = (w) => given.first + (w * 7 - monday) * DAY;
  const counts = cohortsOf.get(key(state.choice)) ?? new Map(), last = week(state.to);
  const rows = [...counts].filter(([first]) => first >= week(state.from) && first <= last).sort((a, b) => a[0] - b[0]).map(([first, list]) => {
    const found = new Map();
    for (let n = 0; n < list.length; n += 2) found.set(list[n], list[n + 1]);
    return { first, size: found.get(0), found };
  });
  const shownWeeks = Math.max(0, ...rows.map((row) => Math.min(last - row.first, 12)));
  const later = Array.from({ length: shownWeeks }, (_, n) => n + 1);
  table("cohorts", "Users by the week of their first session", [
    { title: "Week of", kind: "text" }, { title: "Users", kind: "count" }, ...later.map((n) => ({ title: `+${n} wk`, kind: "heat" })),
  ], rows.map((row) => [new Date(start(row.first)).toISOString().slice(0, 10), row.size, ...later.map((n) => (row.first + n > last ? null : ratio(row.found.get(n) ?? 0, row.size)))]));
  element("cohorts").hidden = !later.length;
  element("cohorts").querySelector(".note").textContent = "Of the users of a week, those with a session so many weeks later. Whole weeks from Monday that touch the chosen days; a first session is the first among these rows that the choice shows.";
}

const EDGES = [0, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].map((s) => s * 1000);
const QUANTILES = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99];

// The smallest value that is not below so large a part of all: `quantile_disc` of SQL.
function quantile(sorted, all, part) {
  let seen = 0;
  for (const [value, count] of sorted) {
    seen += count;
    if (seen >= part * all - 1e-9) return value;
  }
  return null;
}

function showLengths() {
  const lengths = tally("lengths", state), all = total(lengths);
  const bins = EDGES.map(() => 0);
  for (const [length, count] of lengths) bins[EDGES.findLastIndex((edge) => edge <= length)] += count;
  const used = bins.flatMap((count, n) => (count ? [n] : []));
  const rows = bins.map((count, n) => [n + 1 < EDGES.length ? `${brief(EDGES[n])} to ${brief(EDGES[n + 1])}` : `${brief(EDGES[n])} or more`, count, ratio(count, all)]);
  table("lengths", "Length", [{ title: "How long", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" }],
    all ? rows.slice(used[0], used.at(-1) + 1) : []);
  element("lengths").querySelector(".note").textContent = given.ends_with === "session_end"
    ? "From the first event to session_end. These rows have no last_event_time, so each length contains the gap." : "From the first event to the last.";
  const sums = figures(state.from, state.to, state.choice);
  const sizes = given.cells.sizes ? tally("sizes", state) : null;
  const lines = [["Length", lengths, sums.longest], ...(sizes ? [["Events", sizes, sums.most_events]] : [])];
  table("quantiles", "Percentiles", [{ title: "Percentile", kind: "text" }, { title: "Length", kind: "time" }, ...(sizes ? [{ title: "Events", kind: "count" }] : [])],
    !all ? [] : [...QUANTILES.map((part) => [`${part * 100}%${part === 0.5 ? " (median)" : ""}`, ...lines.map(([, counts]) => quantile([...counts].sort((a, b) => a[0] - b[0]), total(counts), part))]),
      ["the most", ...lines.map(([, , most]) => most)]]);
  element("quantiles").querySelector(".note").textContent = `So large a part of sessions is no longer than that.${given.digits === null ? "" : ` Lengths but the longest are rounded down to ${given.digits} digit${given.digits > 1 ? "s" : ""}.`}`;
  const reasons = [...tally("closings", state)].sort((a, b) => b[1] - a[1]);
  table("closings", "Why they ended", [{ title: "Reason", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" }],
    given.closings.length ? reasons.map(([place, count]) => [label(given.closings, place, "all other reasons"), count, ratio(count, all)]) : []);
  const longest = rowsOf(given.longest).filter((row) => row.t >= state.from && row.t <= state.to && fits(row, state.choice))
    .sort((a, b) => b.length - a.length || a.began - b.began).slice(0, given.longest_shown);
  table("longest", "The longest", [{ title: "Session", kind: "code" }, { title: "Began", kind: "moment" }, { title: "Length", kind: "time" }, ...(given.columns.events ? [{ title: "Events", kind: "count" }] : [])],
    longest.map((row) => [row.id, row.began, row.length, ...(given.columns.events ? [row.events] : [])]));
  element("longest").querySelector(".note").textContent = "Find their rows by session_id. Keys of users are no part of this page.";
}

const brief = (ms) => span(ms).replace(/ 0+[smh]$/, "");

function showRejected() {
  const all = rowsOf(given.rejected);
  const sums = new Map();
  for (const row of all.filter((one) => one.t === null || (one.t >= state.from && one.t <= state.to))) {
    const of = JSON.stringify([row.t === null, row.kind, row.reason]);
    sums.set(of, (sums.get(of) ?? 0) + row.counted);
  }
  const rows = [...sums].map(([of, count]) => [...JSON.parse(of), count]).sort((a, b) => a[0] - b[0] || b[3] - a[3]);
  table("rejected", "Rows that are no part of a session", [{ title: "Kind", kind: "text" }, { title: "Reason", kind: "text" }, { title: "When", kind: "text" }, { title: "Rows", kind: "count", bar: true }],
    rows.map(([isElsewhere, kind, reason, count]) => [kind, label(given.reasons, reason, "all other reasons"), ours(isElsewhere ? "outside the days of the sessions" : "in the chosen days"), count]));
  element("rejected").hidden = false;
  const note = element("rejected").querySelector(".note");
  if (!given.rejected.t) note.textContent = "These rows are sessions alone. Call sessionize with with_rejected=True to see what was late, a duplicate or broken.";
  else if (!rows.length) note.textContent = "None in the chosen days.";
  else note.textContent = `They answer to the days, by the time of their event, and not to ${dimensions.length ? dimensions.join(" or ") : "anything else"}: such rows have no session.`;
}

function showWords() {
  const words = [
    ["Sessions", "Counted by the day (in UTC) on which they began. Of a session with several revisions, the last one counts."],
    ["Users", `Told apart by ${given.columns.keys.join(", ") || "nothing: these rows have no key"}; each counts once in the chosen days.${Object.values(given.gaps).some((most) => most !== null) ? " A dash: so many days were too much to count exactly." : ""}`],
    given.columns.engaged_time ? ["Engaged time", `The average of ${given.columns.engaged_time}.`] : ["Engaged time", "No column of these rows has it; the page shows the average length of sessions instead."],
    ["Length", given.ends_with === "session_end" ? "From the first event to session_end, the gap included." : "From the first event to the last."],
    measures.some((one) => one.id === "converted") && ["Conversion", given.columns.converted ? `Sessions with ${given.columns.converted}, of all sessions.` : `Sessions that got to ${given.columns.funnel.at(-1)} and all steps before it, of all sessions.`],
    ["New users", given.columns.number ? `Those of whom session ${given.columns.number} 1 is among the sessions.` : "Those whose first session among these rows is among the sessions."],
  ].filter(Boolean);
  element("words").replaceChildren(...words.flatMap(([word, text]) => [made("dt", word), made("dd", text)]));
}

// ---- the page --------------------------------------------------------------------------------

function show() {
  for (const part of [showChoice, showCards, showTime, showBy, showFunnel, showWays, showEnds, showCohorts, showLengths, showRejected]) part();
  for (const section of document.querySelectorAll("section")) section.hidden = [...section.querySelectorAll("article")].every((one) => one.hidden);
  // Tells whoever waits for it that all is drawn.
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
}

function choose(changed) {
  Object.assign(state, changed);
  const active = document.activeElement?.dataset.measure;
  remember();
  show();
  if (active) document.querySelector(`[data-measure="${active}"]`).focus();
}

function build() {
  const sessions = cells.reduce((sum, cell) => sum + cell.sessions, 0);
  element("about").textContent = `${formats.count(sessions)} sessions from ${shownDays(0, given.units - 1)}; days are in UTC.`;
  document.querySelector(".presets").append(...[...spans, 0].map((days) => {
    const button = made("button", days ? `${days} ${days === 1 ? "day" : "days"}` : "All", { type: "button" });
    button.dataset.days = days;
    button.addEventListener("click", () => { chooseDays(days); choose({}); });
    return button;
  }));
  element("from").addEventListener("change", (event) => { const from = unitOf(event.target.value, false); choose({ from, to: Math.max(state.to, from + PER_DAY - 1) }); });
  element("to").addEventListener("change", (event) => { const to = unitOf(event.target.value, true); choose({ to, from: Math.min(state.from, to - PER_DAY + 1) }); });
  element("each").addEventListener("change", (event) => choose({ each: event.target.value }));
  element("clear").addEventListener("click", () => choose({ choice: dimensions.map(() => null) }));
  element("clear").hidden = !dimensions.length;
  for (const n of [0, 1]) {
    const select = element(`choice${n}`);
    select.parentNode.hidden = n >= dimensions.length;
    if (n >= dimensions.length) continue;
    element(`name${n}`).textContent = dimensions[n];
    select.append(new Option("all", ""), ...placesOf(n).map((place) => new Option(plain(valueLabel(n, place)), nameOf(n, place))));
    select.addEventListener("change", () => choose({ choice: state.choice.with(n, placeOf(n, select.value)) }));
  }
  if (dimensions.length > 1) {
    const select = made("select", dimensions.map((name, n) => new Option(name, n)));
    select.setAttribute("aria-label", "By which dimension");
    element("by-head").append("By ", select);
    select.value = state.by;
    select.addEventListener("change", () => choose({ by: Number(select.value) }));
  } else element("by-head").textContent = `By ${dimensions[0] ?? ""}`;
  element("by").querySelector("h3").textContent = "Sessions of each value";
  showWords();
  show();
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; showTime(); } });
  addEventListener("hashchange", () => { recall(); show(); });
}

if (location.hash.length > 1) recall();
build();
