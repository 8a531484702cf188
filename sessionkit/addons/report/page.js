// Shows the counts of the page for the days and values that the reader chooses.
//
// All figures come from `figures(at)`, where `at` is {from, to, choice}: sums over cells (a day, and a value of
// each filter), and users, who don't add up. With an `hour`, those of that hour of each day. The sections below
// only put them into tables.

const given = JSON.parse(document.getElementById("given").textContent);
const DAY = 86400000, HOUR = 3600000;
const DAYS = given.days, HOURS = Array.from({ length: 24 }, (_, hour) => hour);
const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const OTHER = -1, NONE = -2, MORE = -3;
const element = (id) => document.getElementById(id);
const filters = given.filters;
const placeOfRole = (role) => filters.findIndex((filter) => filter.role === role);
const dimensions = filters.flatMap((filter, n) => (filter.role === "dimension" ? [n] : []));
const steps = given.columns.steps.length ? given.columns.steps : given.columns.funnel;

// ---- what is counted -------------------------------------------------------------------------

// A choice has the place of a value for each filter; null for all. A step stands for all later ones.
const tested = (choice) => choice.flatMap((place, n) => (place === null ? [] : [{ place, column: filters[n].column, isStep: filters[n].role === "step" }]));
const fits = (tests, columns, row) => tests.every(({ place, column, isStep }) => (isStep ? columns[column][row] >= place : columns[column][row] === place));

// The first cube has all sums. What would be too many counts there is in the second, by fewer filters.
const cubeOf = ({ by, cells }) => {
  const starts = Array(DAYS + 1).fill(cells.t.length);
  for (let n = cells.t.length - 1; n >= 0; n -= 1) starts[cells.t[n]] = n;
  for (let t = DAYS - 1; t >= 0; t -= 1) starts[t] = Math.min(starts[t], starts[t + 1]);
  const isSum = (name) => !["t", "hour", "unlisted"].includes(name) && !by.includes(name) && !Array.isArray(cells[name][0]);
  return { by, cells, starts, sums: Object.keys(cells).filter(isSum) };
};
const cubes = given.cubes.map(cubeOf);

// The places of the chosen cells; null if the cube doesn't tell a chosen filter apart.
function chosenCells({ by, cells, starts }, { from, to, choice }) {
  const tests = tested(choice), found = [];
  if (!tests.every(({ column }) => by.includes(column))) return null;
  const end = starts[Math.min(to + 1, DAYS)];
  for (let n = starts[Math.max(from, 0)]; n < end; n += 1) if (fits(tests, cells, n)) found.push(n);
  return found;
}

function figures(at) {
  if (at.hour !== undefined) return hourly(at);
  const [{ cells, sums }] = cubes, chosen = chosenCells(cubes[0], at), found = { ...users(at), twice: twice(at) };
  for (const name of sums) {
    const values = cells[name], isMost = name === "longest" || name === "most_events";
    let sum = 0;
    for (const n of chosen) sum = isMost ? Math.max(sum, values[n]) : sum + values[n];
    found[name] = sum;
  }
  return found;
}

// How often each value is there, of a list that has values and their counts in turn. Null: not known.
function tally(name, at, width = 1) {
  const cube = cubes.find(({ cells }) => cells[name]);
  const chosen = cube && chosenCells(cube, at);
  if (!chosen) return null;
  const found = new Map();
  for (const cell of chosen) {
    const counts = cube.cells[name][cell];
    for (let n = 0; n < counts.length; n += width + 1) {
      const sums = found.get(counts[n]) ?? Array(width).fill(0);
      found.set(counts[n], sums.map((sum, place) => sum + counts[n + 1 + place]));
    }
  }
  return found;
}

// Counts of users by the places of a choice, and then by time; undefined if that isn't counted.
function byPlaces(sets, time) {
  const found = new Map();
  for (const set of sets) {
    const places = new Map();
    set[time].forEach((t, n) => {
      const key = set.by.map((column) => set[column][n]).join();
      if (!places.has(key)) places.set(key, new Map());
      places.get(key).set(t, set.counts[n]);
    });
    found.set(set.by.join(), { most: set.most, places });
  }
  return (choice) => {
    const tests = tested(choice), set = found.get(tests.map(({ column }) => column).join());
    return set && { most: set.most, times: set.places.get(tests.map(({ place }) => place).join()) ?? new Map() };
  };
}
const hoursOf = byPlaces(given.hours.sets, "t"), [hourCube] = given.hours.cubes.map(cubeOf);

// Figures of an hour of a day: sums of cells, and users, who don't add up.
function hourly(at) {
  const day = { ...at, to: at.from }, found = { sessions: 0, users: null, seen_before: null, twice: null };
  const counted = hoursOf(at.choice), cells = hourCube && chosenCells(hourCube, day);
  if (counted) {
    found.users = 0;
    addUp(counted, day, (t, counts, n) => { if (counts[n] === at.hour) [found.sessions, found.users] = [counts[n + 1], counts[n + 2]]; }, 3);
  }
  if (cells) {
    found.sessions = 0;
    addCells(cells.filter((n) => hourCube.cells.hour[n] === at.hour), () => found);
  }
  return found;
}

// The sums of each weekday and hour.
function weekly(at, weekdayOf) {
  const found = WEEKDAYS.map(() => HOURS.map(() => ({ sessions: 0, users: null }))), cells = hourCube && chosenCells(hourCube, at);
  if (cells) addCells(cells, (n) => found[weekdayOf(hourCube.cells.t[n])][hourCube.cells.hour[n]]);
  else addUp(hoursOf(at.choice), at, (t, counts, n) => { found[weekdayOf(t)][counts[n]].sessions += counts[n + 1]; }, 3);
  return found;
}

function addCells(cells, of) {
  for (const n of cells) {
    const found = of(n);
    for (const name of hourCube.sums) found[name] = (found[name] ?? 0) + hourCube.cells[name][n];
  }
}

const usersOf = byPlaces(given.users, "t"), twiceOf = byPlaces(given.twice, "t"), cohortsOf = byPlaces(given.cohorts, "first");
const tellsApart = (counted, { from, to }) => counted && (counted.most === null || from <= 0 || to - from <= counted.most);

// Calls a function with each day, its list, and each place of it at which a number and its counts begin.
function addUp(counted, { from, to }, add, width = 2) {
  for (let t = from; t <= to; t += 1) {
    const counts = counted.times.get(t) ?? [];
    for (let n = 0; n < counts.length; n += width) add(t, counts, n);
  }
}

// Users of some days are those whose visit before is before these days. Of a first visit under the filters, the
// days since the user's first session have a minus; -DAYS is before all rows. Null: it isn't known.
function users(at) {
  const counted = usersOf(at.choice), found = { users: 0, seen_before: 0 };
  if (!tellsApart(counted, at)) return { users: null, seen_before: null };
  addUp(counted, at, (t, counts, n) => {
    const gap = counts[n], count = counts[n + 1];
    if (gap > 0 && t - gap >= at.from) return;
    found.users += count;
    if (gap === -DAYS || (gap !== 0 && t - Math.abs(gap) < at.from)) found.seen_before += count;
  });
  return found;
}

// Users with two sessions or more: the counts are differences, from one visit to the next.
function twice(at) {
  const counted = twiceOf(at.choice);
  if (!tellsApart(counted, at)) return null;
  let found = 0;
  addUp(counted, at, (t, counts, n) => { if (t - counts[n] >= at.from) found += counts[n + 1]; });
  return found;
}

// Of those sessions of which the figure is known.
const share = (sums, name) => ratio(sums[name], sums.sessions - (sums[`${name}_unknown`] ?? 0));
const ratio = (part, whole) => (whole ? (part ?? 0) / whole : null);
const total = (counts) => [...counts.values()].reduce((sum, [count]) => sum + count, 0);
// The dash of a figure that isn't known stays a dash.
const known = (value, of) => (value === null ? null : of(value));

const durationName = given.ends_with === "session_end" ? "Duration with gap" : "Duration";
const duration = { id: "length", name: durationName, kind: "time", median: "lengths", of: (sums) => ratio(sums.length, sums.length_known) };
const has = given.columns;
const hasConverted = Boolean(has.converted || steps.length);
// What a session may reach: a goal has its name, its sum, and how many sessions of which it isn't known.
const goals = [
  ...(has.converted ? [{ id: "conversion", name: has.converted, sum: "converted" }] : []),
  ...has.goals.map((name, n) => ({ id: `goal-${name}`, name, sum: `goal${n}` })),
];
const reaches = [...goals, ...steps.map((name, n) => ({ id: `step-${name}`, name, sum: `reached_${n}` }))];
const perUser = (sums) => known(sums.users, (all) => ratio((sums.value ?? 0) - (sums.value_of_nobody ?? 0), all));

const measures = [
  { id: "sessions", name: "Sessions", kind: "count", of: (sums) => sums.sessions },
  { id: "users", name: "Users", kind: "count", isOfUsers: true, of: (sums) => sums.users },
  has.engaged_time ? { id: "engaged_time", name: "Engaged time", kind: "time", median: "engaged_times", of: (sums) => ratio(sums.engaged_time, sums.engaged_time_known) } : duration,
  { id: "converted", name: "Conversion rate", kind: "share", is: hasConverted, of: (sums) => share(sums, "converted") },
  { id: "is_new", name: "New users", kind: "count", of: (sums) => sums.is_new ?? 0 },
  { id: "seen_before", name: "Users seen before", kind: "count", isOfUsers: true, isOfDays: true, of: (sums) => sums.seen_before },
  { id: "twice", name: "Users with 2+ sessions", kind: "count", isOfUsers: true, isOfDays: true, of: (sums) => sums.twice },
  { id: "value", name: "Revenue", kind: "money", is: has.value, of: (sums) => sums.value ?? 0 },
  { id: "value_per_session", name: "Revenue per session", kind: "money", is: has.value, of: (sums) => share(sums, "value") },
  { id: "value_per_user", name: "Revenue per user", kind: "money", is: has.value, isOfUsers: true, of: perUser },
  { id: "views", name: "Page views", kind: "count", is: has.views, of: (sums) => sums.views ?? 0 },
  { id: "views_per_session", name: "Views per session", kind: "number", is: has.views, of: (sums) => ratio(sums.views, sums.sessions - (sums.views_unknown ?? 0)) },
  ...(has.engaged_time ? [duration] : []),
  { id: "engaged", name: "Engagement rate", kind: "share", is: has.engaged, of: (sums) => share(sums, "engaged") },
  { id: "bounced", name: "Bounce rate", kind: "share", is: has.bounce || has.events, less: true, of: (sums) => share(sums, "bounced") },
  { id: "events", name: "Events per session", kind: "number", is: has.events, median: "sizes", of: (sums) => ratio(sums.events, sums.events_known) },
  ...reaches.flatMap(({ id, name, sum }) => [
    { id: `${id}-sessions`, name: `Sessions that reached ${visible(name)}`, kind: "count", isGoal: true, of: (sums) => sums[sum] ?? 0 },
    { id: `${id}-share`, name: `Share that reached ${visible(name)}`, kind: "share", isGoal: true, of: (sums) => share(sums, sum) },
  ]),
].filter((measure) => !("is" in measure) || measure.is);

// ---- how values look -------------------------------------------------------------------------

// Numbers look as the reader's browser writes them.
const LOCALE = navigator.languages;
const decimal = (value, digits) => value.toLocaleString(LOCALE, { maximumFractionDigits: digits });
const tenths = (value) => value.toLocaleString(LOCALE, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const formats = {
  text: (value) => made("bdi", visible(value)),
  count: (value) => decimal(value, 0),
  number: (value) => decimal(value, 2),
  money: (value) => value.toLocaleString(LOCALE, has.currency ? { style: "currency", currency: has.currency } : { minimumFractionDigits: 2, maximumFractionDigits: 2 }),
  share: (value) => `${tenths(value * 100)}%`,
  change: (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${tenths(Math.abs(value) * 100)}%`,
  code: (value) => made("bdi", visible(value)),
  time: span,
  moment: (value) => new Date(value).toISOString().slice(0, 16).replace("T", " "),
  heat: (value) => `${decimal(value * 100, 0)}%`,
};

const counted = (count, one, many = `${one}s`) => `${decimal(count, 0)} ${count === 1 ? one : many}`;

// Marks that turn the text around them, or that nobody sees, as their code.
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

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

const startOf = (t) => given.first + t * DAY;
const date = (t) => new Date(startOf(t)).toISOString().slice(0, 10);
const shownDate = (ms, year) => new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC", ...(year ? { year: "numeric" } : {}) });
const shownDays = (from, to) => (from === to ? shownDate(startOf(from), true) : `${shownDate(startOf(from), true)} to ${shownDate(startOf(to), true)}`);

// ---- tables ----------------------------------------------------------------------------------

const tables = new Map();

function made(tag, content, attributes = {}) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...[content].flat().filter((one) => one !== null && one !== undefined));
  return node;
}

// Columns have a title and a kind; one may have a bar, of which each row gives the share of the first.
// `pick` gives what a click on a row does, if anything; `open` whether a cell's time isn't over yet.
// Rows are null where the page has no counts for the chosen filters.
function table(id, title, columns, rows, { pick = () => null, open = () => false, isLong, does = "Show only these sessions" } = {}) {
  const place = element(id);
  place.hidden = rows?.length === 0;
  place.querySelector(".unknown")?.remove();
  if (!rows) place.append(made("p", `Too many sessions to count this by ${chosenNames()}: remove a filter to see it.`, { className: "note unknown" }));
  rows ??= [];
  tables.set(id, { columns, rows });
  const head = made("tr", columns.map((column) => made("th", visible(column.title), { scope: "col", className: column.kind })));
  const barred = columns.findIndex((column) => column.bar);
  const barOf = (row) => ((row[0].of ?? row[0]).isRest ? 0 : row[barred] ?? 0);
  const most = Math.max(...rows.map(barOf));
  const body = rows.map((row, n) => made("tr", columns.map((column, c) => {
    const cell = made("td", shown(column, row[c], c === 0 ? pick(n) : null, does), { className: column.kind });
    if (column.indent) cell.style.paddingLeft = `${0.5 + 1.1 * row[c].depth}rem`;
    if (c === 0 && barOf(row)) {
      cell.classList.add("bar");
      cell.style.setProperty("--share", `${(100 * barOf(row)) / most}%`);
    }
    if (column.kind === "code") cell.title = visible(plain(row[c]));
    if (column.kind === "heat" && row[c] !== null) cell.style.setProperty("--share", `${100 * row[c]}%`);
    if (row[c] !== null && open(n, c)) Object.assign(cell, { title: "not over yet" }).classList.add("open");
    return cell;
  })));
  const scroll = made("div", made("table", [made("thead", head), made("tbody", body)]), { className: isLong ? "scroll long" : "scroll", tabIndex: 0 });
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  place.querySelector(".body").replaceChildren(...(rows.length ? [scroll] : []));
  addDownload(place, id, title);
}

// A column of kind "own" has {kind, value} in each row.
function shown(column, value, pick, does) {
  if (column.kind === "own") return shown({ kind: value.kind }, value.value);
  if (value === null || value === undefined) return column.kind === "heat" ? "" : "–";
  const text = column.indent && value.depth ? "↳\u00a0" : "";
  const of = column.indent ? value.of : value;
  const node = typeof of === "object" ? made("em", of.text) : formats[column.kind](of);
  if (!pick) return [text, node];
  const button = made("button", node, { type: "button", title: does });
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

// Times are seconds, moments those of the page's clock. Text that a spreadsheet would take for a formula gets a sign before it.
function csv(id) {
  const { columns, rows } = tables.get(id);
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const cell = (column, value) => {
    if (column.kind === "own") return cell({ kind: value.kind }, value.value);
    if (value === null || value === undefined) return "";
    if (column.kind === "time") return String(value / 1000);
    if (column.kind === "moment") return new Date(value).toISOString().slice(0, -1);
    const of = plain(column.indent ? value.path : value);
    return typeof of === "number" ? String(of) : quoted(of.replace(/^(?=[=+\-@\t\r])/, "'"));
  };
  const heads = columns.map((column) => quoted(column.kind === "time" ? `${column.title} in s` : column.title));
  return [heads, ...rows.map((row) => columns.map((column, n) => cell(column, row[n])))].map((line) => `${line.join()}\r\n`).join("");
}

// ---- what is chosen --------------------------------------------------------------------------

const spans = [1, 7, 28, 90].filter((days) => days < DAYS);
const state = {};

// The last days of which there are as many before, so that there is something to compare with.
const usual = [28, 7].find((days) => 2 * days <= DAYS) ?? DAYS;
const lastDays = (days) => ({ from: Math.max(0, DAYS - days), to: DAYS - 1 });

const length = () => state.to - state.from + 1;
const inWeeks = (days) => Math.ceil(days / 7) * 7;
const yearBefore = (t) => {
  const day = new Date(startOf(t));
  return Math.round((startOf(t) - Date.UTC(day.getUTCFullYear() - 1, day.getUTCMonth(), day.getUTCDate())) / DAY);
};
// By how many days the compared ones are earlier.
const comparisons = {
  previous: { name: "previous period", days: () => length() },
  weekdays: { name: "previous period, same weekdays", days: () => inWeeks(length()) },
  year: { name: "year before", days: () => yearBefore(state.from) },
  year_weekdays: { name: "year before, same weekdays", days: () => 364 },
  segment: { name: "another segment", days: () => 0 },
  none: { name: "nothing", days: () => null },
};
if (!filters.length) delete comparisons.segment;

// Two segments have the same days, and filters of their own.
const hasSegments = () => state.compare === "segment";
const segmentOf = (n) => state.names[n] || [state.choice, state.other][n].flatMap((place, f) => (place === null ? [] : [`${titleOf(filters[f])} ${plain(valueLabel(f, place))}`])).join(", ") || "All sessions";
const comparedName = () => (hasSegments() ? segmentOf(1) : comparisons[state.compare].name);

function before() {
  if (hasSegments()) return { from: state.from, to: state.to, choice: state.other };
  const days = comparisons[state.compare].days();
  const from = state.from - days;
  return days === null || from < 0 ? null : { from, to: from + length() - 1, choice: state.choice };
}

// In the address, a real value has `=` before it: a real `other` isn't ours.
const idOf = (filter) => (filter.role === "dimension" ? `is-${filter.name}` : filter.role);
const labelsOf = (n) => filters[n].values;
const isStep = (n) => filters[n].role === "step";
const nameOf = (n, place) => (place === null ? "" : place === OTHER ? "other" : place === NONE ? "none" : `=${labelsOf(n)[isStep(n) ? place - 1 : place]}`);
const placesOf = (n) => {
  if (isStep(n)) return labelsOf(n).map((_, step) => step + 1);
  return [...new Set(cubes[0].cells[filters[n].column])].sort((a, b) => (a < 0) - (b < 0) || (a < 0 ? b - a : a - b));
};
// Null for a value that isn't there.
const placeOf = (n, name) => placesOf(n).find((place) => nameOf(n, place) === name) ?? null;
const valueLabel = (n, place) => (isStep(n) ? labelsOf(n)[place - 1] : label(labelsOf(n), place, counted(filters[n].rest, "other value")));
const chosenNames = () => filters.filter((_, n) => state.choice[n] !== null).map((filter) => titleOf(filter)).join(" and ");
const titleOf = (filter) => ({ dimension: visible(filter.name), entry: "Entry page", exit: "Exit page", step: "Reached step" }[filter.role]);

function unitOf(text, isEnd) {
  const days = Math.round((Date.parse(text) - given.first) / DAY);
  if (Number.isNaN(days)) return isEnd ? DAYS - 1 : 0;
  return Math.min(Math.max(days, 0), DAYS - 1);
}

const NAMES = ["segment", "other-segment"];

function address() {
  const kept = { from: date(state.from), to: date(state.to) };
  state.choice.forEach((place, n) => { if (place !== null) kept[idOf(filters[n])] = nameOf(n, place); });
  if (state.measure !== "sessions") kept.measure = state.measure;
  if (state.compare !== "previous") kept.compare = state.compare;
  if (dimensions.length && state.by !== dimensions[0]) kept.by = filters[state.by].name;
  if (state.each) kept.each = state.each;
  if (hasSegments()) {
    state.other.forEach((place, n) => { if (place !== null) kept[`other-${idOf(filters[n])}`] = nameOf(n, place); });
    state.names.forEach((name, n) => { if (name) kept[NAMES[n]] = name; });
  }
  return `#${new URLSearchParams(kept)}`;
}

// Reads the address, and notes what of it isn't there: a filter that is dropped would show wrong numbers.
function recall() {
  const kept = new URLSearchParams(location.hash.slice(1)), lost = [];
  const choiceOf = (prefix) => filters.map((filter, n) => {
    const name = kept.get(prefix + idOf(filter));
    const place = name === null ? null : placeOf(n, name);
    if (name !== null && place === null) lost.push(`${titleOf(filter)} ${name.replace(/^=/, "")}`);
    return place;
  });
  const choice = choiceOf(""), other = choiceOf("other-");
  const names = new Set([...filters.flatMap((filter) => [idOf(filter), `other-${idOf(filter)}`]), ...NAMES, "from", "to", "measure", "compare", "by", "each"]);
  for (const name of kept.keys()) if (!names.has(name)) lost.push(name.replace(/^is-/, ""));
  const pick = (name, isThere, otherwise) => {
    if (!kept.has(name) || isThere(kept.get(name))) return kept.get(name) ?? otherwise;
    lost.push(`${name} ${kept.get(name)}`);
    return otherwise;
  };
  const dates = ["from", "to"].map((name) => kept.get(name)), last = date(DAYS - 1);
  const isOutside = (dates[0] ?? "") > last || (dates[1] ?? last) < date(0);
  if (isOutside) lost.push(`days ${dates[0] ?? ""} to ${dates[1] ?? ""}`);
  Object.assign(state, dates[0] || dates[1] ? { from: unitOf(dates[0], false), to: unitOf(dates[1], true) } : lastDays(usual), {
    choice,
    other,
    names: NAMES.map((name) => kept.get(name) ?? ""),
    lost,
    measure: pick("measure", (id) => measures.some((one) => one.id === id), "sessions"),
    compare: pick("compare", (id) => id in comparisons, "previous"),
    by: dimensions.find((n) => filters[n].name === pick("by", (name) => dimensions.some((one) => filters[one].name === name), null)) ?? dimensions[0],
    each: kept.get("each") ?? "",
  });
  state.to = Math.max(state.to, state.from);
}

// ---- the first screen ------------------------------------------------------------------------

function showChoice() {
  element("from").value = date(state.from);
  element("to").value = date(state.to);
  for (const id of ["from", "to"]) Object.assign(element(id), { min: date(0), max: date(DAYS - 1) });
  filters.forEach((_, n) => {
    element(`choice${n}`).value = nameOf(n, state.choice[n]);
    element(`other${n}`).value = nameOf(n, state.other[n]);
  });
  NAMES.forEach((_, n) => { Object.assign(element(`name${n}`), { value: state.names[n], placeholder: visible(segmentOf(n)) }); });
  element("other").hidden = element("name0").parentNode.hidden = !hasSegments();
  element("compare").value = state.compare;
  element("measure").value = state.measure;
  element("each").value = state.each;
  element("clear").hidden = state.choice.every((place) => place === null);
  for (const button of document.querySelectorAll(".presets button")) {
    const { from, to } = lastDays(Number(button.dataset.days));
    button.setAttribute("aria-pressed", String(state.to === to && state.from === from));
  }
  const was = before();
  const days = `${counted(length(), "day")}: ${shownDays(state.from, state.to)}${isOver(state.to) ? "" : ", the last of which isn't over"}`;
  const none = state.compare === "none" ? "." : ". The rows don't reach back to the days to compare with.";
  element("period").textContent = hasSegments() ? `${days}. ${visible(segmentOf(0))}, compared with ${visible(segmentOf(1))}.`
    : was ? `${days}. Compared with the ${comparisons[state.compare].name}: ${shownDays(was.from, was.to)}.` : days + none;
  const lost = state.lost.map((one) => `The address asks for ${one}, which these rows don't have. It isn't applied.`);
  element("notes").replaceChildren(...[...lost, ...given.notes].map((note) => made("li", visible(note))));
}

// As far as the rows show: a session has begun after the end of a day, or of an hour.
const isOver = (end, hour) => (hour === undefined ? end < Math.floor((given.last - given.first) / DAY) : startOf(end) + (hour + 1) * HOUR <= given.last);

function change(measure, now, was) {
  if (now === null || was === null || was === undefined) return null;
  const isShare = measure.kind === "share";
  const moved = isShare ? (now - was) * 100 : was ? ((now - was) / was) * 100 : null;
  if (moved === null) return null;
  const size = decimal(Math.abs(moved), Math.abs(moved) < 10 ? 1 : 0);
  const is = size === "0" ? "" : (moved > 0) === !measure.less ? "up" : "down";
  return made("span", `${size === "0" ? "" : moved > 0 ? "▲ " : "▼ "}${size}${isShare ? " pts" : "%"}`, { className: `change ${is}` });
}

// Half of the sessions of which it is known have at most this; of many different values it is rounded down.
const medianOf = (list, at) => known(tally(list, at), (counts) => quantile(counts, 0.5));
function median(measure, at) {
  const value = medianOf(measure.median, at);
  return value === null ? "–" : (given.shown[measure.median] === null ? "" : "≈ ") + formats[measure.kind](value);
}

function showCards() {
  const was = before(), now = figures(state), then = was && figures(was);
  element("cards").replaceChildren(...measures.filter((measure) => !measure.isGoal).map((measure) => {
    const value = measure.of(now), old = then && measure.of(then);
    const card = made("button", [
      made("span", measure.name),
      made("b", value === null ? "–" : formats[measure.kind](value)),
      " ",
      change(measure, value, old),
      measure.median && made("span", `median: ${median(measure, state)}`),
      then && made("span", [made("bdi", hasSegments() ? visible(segmentOf(1)) : "before"), `: ${old === null ? "–" : formats[measure.kind](old)}`]),
    ], { type: "button" });
    card.dataset.measure = measure.id;
    card.setAttribute("aria-pressed", String(measure.id === state.measure));
    card.addEventListener("click", () => choose({ measure: measure.id }));
    return card;
  }));
}

// The parts of the chosen time: hours, days, weeks or months, cut at the first and last day.
function parts(each) {
  const found = [];
  for (let t = state.from; t <= state.to;) {
    if (each === "hour") {
      found.push(...HOURS.map((hour) => ({ from: t, to: t, hour, isWhole: true, isOver: isOver(t, hour) })));
      t += 1;
      continue;
    }
    const at = new Date(startOf(t));
    const next = { day: t + 1, week: t + 7 - ((at.getUTCDay() + 6) % 7),
      month: (Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1) - given.first) / DAY }[each];
    const whole = { day: true, week: at.getUTCDay() === 1, month: at.getUTCDate() === 1 }[each];
    found.push({ from: t, to: Math.min(next - 1, state.to), isWhole: whole && next - 1 <= state.to, isOver: isOver(next - 1) });
    t = next;
  }
  return found;
}

// Whether the page has a measure by hour, of the chosen filters.
const isByHour = (measure, choice) => {
  const hasSums = Boolean(hourCube) && tested(choice).every(({ column }) => hourCube.by.includes(column)), hasUsers = Boolean(hoursOf(choice));
  if (measure.isOfDays) return false;
  if (measure.id === "sessions") return hasSums || hasUsers;
  return measure.isOfUsers ? hasUsers && (hasSums || measure.id === "users") : hasSums;
};

function eachOf(measure, was) {
  const days = length();
  const hasHours = days <= MOST_DAYS_BY_HOUR && isByHour(measure, state.choice) && (!was || isByHour(measure, was.choice));
  const possible = ["hour", "day", "week", "month"].filter((each) => (each === "hour" ? hasHours : each === "day" || days > { week: 7, month: 31 }[each]));
  const usual = days <= 4 && hasHours ? "hour" : days <= 200 ? "day" : days <= 1000 ? "week" : "month";
  const each = possible.includes(state.each) ? state.each : usual;
  element("each").replaceChildren(...possible.map((one) => new Option(one, one, false, one === each)));
  return each;
}

function showTime() {
  const measure = measures.find((one) => one.id === state.measure), was = before(), each = eachOf(measure, was);
  const choice = state.choice, back = was && state.from - was.from, compared = comparedName();
  const bars = parts(each).map((part) => ({
    ...part,
    now: measure.of(figures({ ...part, choice })),
    was: was && measure.of(figures({ from: part.from - back, to: part.to - back, hour: part.hour, choice: was.choice })),
  }));
  const named = (part) => (each === "hour" ? formats.moment(startOf(part.from) + part.hour * HOUR) : each === "month" && part.isWhole ? date(part.from).slice(0, 7) : date(part.from) + (part.to > part.from ? ` to ${date(part.to)}` : ""));
  const name = (part) => named(part) + (part.isOver ? "" : " (not over)");
  element("time").querySelector("h2").textContent = `${measure.name} by ${each}`;
  const key = (text, kind) => [made("span", visible(text), { className: `key ${kind}` }), "\u2003"];
  element("time").querySelector(".note").replaceChildren(...key(hasSegments() ? segmentOf(0) : "chosen days", ""), ...(was ? key(compared, "old") : []),
    ...(bars.some((bar) => !bar.isOver) ? key("not over", "open") : []), ...(bars.some((bar) => !bar.isWhole) ? key(`only a part of the ${each} is chosen`, "part") : []));
  draw(element("time").querySelector(".chart"), bars, measure, each, name);
  table("time", `${measure.name} by ${each}`, [
    { title: each === "hour" ? "Hour" : "Days", kind: "text" },
    { title: hasSegments() ? segmentOf(0) : measure.name, kind: measure.kind },
    ...(was ? [{ title: compared[0].toUpperCase() + compared.slice(1), kind: measure.kind }] : []),
  ], bars.map((bar) => [name(bar), bar.now, ...(was ? [bar.was] : [])]), { isLong: true, open: (n, c) => c === 1 && !bars[n].isOver });
}

// The width of a chart on A4 paper in px, at which its text is as large as that around it.
const PAPER = 660, MOST_DAYS_BY_HOUR = 31;
const paper = matchMedia("print");
let isPrinting = false;
const isOnPaper = () => isPrinting || paper.matches;
const clock = (hour) => `${String(hour).padStart(2, "0")}:00`;

function draw(place, bars, measure, each, name) {
  // On paper, an SVG of a wide screen would shrink, and its text with it.
  const WIDTH = Math.max(isOnPaper() ? Math.min(PAPER, place.clientWidth || PAPER) : place.clientWidth, 280), HEIGHT = WIDTH < 500 ? 180 : 230, BOTTOM = 22, TOP = 8;
  const svg = (tag, attributes, content = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [at, value] of Object.entries(attributes)) node.setAttribute(at, value);
    node.textContent = content;
    return node;
  };
  const most = Math.max(0, ...bars.flatMap((bar) => [bar.now ?? 0, bar.was ?? 0]));
  const ticks = nice(most, measure.kind), top = ticks.at(-1) || 1;
  const LEFT = Math.max(48, 10 + 7 * Math.max(...ticks.map((tick) => formats[measure.kind](tick).length)));
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const step = (WIDTH - LEFT) / bars.length, width = Math.max(step * (step > 6 ? 0.8 : 0.95), 0.8);
  const x = (n) => LEFT + step * n;
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${measure.name} by ${each}; the table below has the same figures` });
  for (const tick of ticks) {
    chart.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(tick), y2: y(tick) }),
      svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, formats[measure.kind](tick)));
  }
  const hatch = svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  hatch.append(svg("rect", { class: "now", width: 3, height: 6 }));
  chart.append(hatch);
  bars.forEach((bar, n) => {
    if (bar.now) chart.append(svg("rect", { class: `now ${bar.isOver ? "" : "open"} ${bar.isWhole ? "" : "part"}`, x: x(n) + (step - width) / 2, y: y(bar.now), width, height: y(0) - y(bar.now) }));
  });
  // A step where there is a figure, and nothing where there is none.
  const steps = bars.map((bar, n) => (bar.was === null ? "" : `${bars[n - 1]?.was == null ? "M" : "L"}${x(n)} ${y(bar.was)}h${step}`)).join("");
  chart.append(svg("path", { class: "was", d: steps }));
  const text = (part) => (part.hour ? clock(part.hour) : each === "month" ? new Date(startOf(part.from)).toLocaleDateString("en-GB", { month: "short", year: "2-digit", timeZone: "UTC" }) : shownDate(startOf(part.from)));
  const fewest = Math.ceil(62 / step);
  const every = each === "hour" ? [1, 2, 3, 6, 12, 24, 48, 96, 192, 384].find((hours) => hours >= fewest) : fewest;
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

// What a click on a value does: all sessions of it, or again all sessions.
const pickOf = (n, place) => (n < 0 || place === null ? null : () => {
  choose({ choice: state.choice.with(n, state.choice[n] === place ? null : place) });
  element(`choice${n}`).focus();
});

function showBy() {
  const heading = element("by-head");
  heading.hidden = element("by").hidden = !dimensions.length;
  if (!dimensions.length) return;
  element("by-which").value = state.by;
  const n = state.by, all = figures(state), was = before();
  // A segment with another value has none of these sessions.
  const of = (at, place) => figures(at.choice[n] === null || at.choice[n] === place ? { ...at, choice: at.choice.with(n, place) } : { ...at, to: -1 });
  const chosen = { from: state.from, to: state.to, choice: state.choice }, others = was && figures(was);
  const rows = placesOf(n).map((place) => ({ place, now: of(chosen, place), was: was && of(was, place) }))
    .filter((row) => row.now.sessions || row.was?.sessions).sort((a, b) => b.now.sessions - a.now.sessions);
  const wanted = ["users", "value", "engaged_time", "length", "converted", "engaged", "bounced"];
  const columns = measures.filter((one) => wanted.includes(one.id));
  const gain = (row) => (row.was?.sessions ? (row.now.sessions - row.was.sessions) / row.was.sessions : null);
  table("by", `By ${filters[n].name}`, [
    { title: filters[n].name, kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" },
    ...(hasSegments() ? [{ title: `${segmentOf(1)}: sessions`, kind: "count" }, { title: `${segmentOf(1)}: share`, kind: "share" }] : was ? [{ title: "Change", kind: "change" }] : []),
    ...columns.map((measure) => ({ title: measure.name, kind: measure.kind })),
  ], rows.map((row) => [valueLabel(n, row.place), row.now.sessions, ratio(row.now.sessions, all.sessions), ...(hasSegments() ? [row.was.sessions, ratio(row.was.sessions, others.sessions)] : was ? [gain(row)] : []), ...columns.map((measure) => measure.of(row.now))]), {
    pick: (line) => pickOf(n, rows[line].place),
  });
  element("by").querySelector(".note").textContent = "Click a value to filter the page by it. A user with two values counts under both.";
}

function showFunnel() {
  const filter = placeOfRole("step");
  const reachedOf = (sums) => [sums.sessions, ...steps.map((_, n) => sums[`reached_${n}`] ?? 0)];
  const reached = reachedOf(figures(state)), others = hasSegments() ? reachedOf(figures(before())) : null;
  table("funnel", "Funnel", [
    { title: "Step", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Of all", kind: "share" },
    { title: "Of previous step", kind: "share" }, { title: "Drop-off", kind: "count" },
    ...(others ? [{ title: `${segmentOf(1)}: sessions`, kind: "count" }, { title: `${segmentOf(1)}: of all`, kind: "share" }] : []),
  ], steps.length ? [ours("all sessions"), ...steps].map((step, n) => [step, reached[n], ratio(reached[n], reached[0]), n ? ratio(reached[n], reached[n - 1]) : null, n ? reached[n - 1] - reached[n] : null, ...(others ? [others[n], ratio(others[n], others[0])] : [])]) : [], {
    pick: (line) => (line ? pickOf(filter, line) : null),
  });
}

const pagesNamed = (role) => (given.pages.length >= given.shown[role] ? `Only the ${counted(given.shown[role], "most frequent page")} have their names here.` : "");
const without = (count, what) => (count ? `${counted(count, "session has", "sessions have")} no ${what}.` : "");
const page = (place) => label(given.pages, place, "all other pages");

// The first pages as a tree: each node has the sessions that came so far, and those that ended there.
function showPaths() {
  const root = { count: 0, left: 0, next: new Map() };
  const counts = tally("paths", state);
  for (const [path, [count]] of counts ?? []) {
    let node = root;
    node.count += count;
    for (const place of given.paths[path].filter((one) => one !== MORE)) {
      if (!node.next.has(place)) node.next.set(place, { count: 0, left: 0, next: new Map() });
      node = node.next.get(place);
      node.count += count;
    }
    if (given.paths[path].at(-1) !== MORE) node.left += count;
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
  table("paths", "Paths", [
    { title: "Page", kind: "text", indent: true }, { title: "Sessions", kind: "count", bar: true }, { title: "Of all", kind: "share" },
    { title: "Of previous page", kind: "share" }, { title: "Exits", kind: "count" }, { title: "Exit rate", kind: "share" },
  ], counts && (root.count ? rows : []), { isLong: true });
  const missing = figures(state).sessions - root.count;
  element("paths").querySelector(".note").textContent = `The first four pages of sessions, the most frequent at each step.${counts ? ` ${without(missing, "path")}` : ""} ${pagesNamed("paths")}`;
}

// The pages with most of the first count, and the counts of all others together.
function topPages(counts, width = 2) {
  const named = [...counts].filter(([place]) => place !== OTHER).sort((a, b) => b[1][0] - a[1][0] || a[0] - b[0]).slice(0, 10);
  const rest = [...counts.values()].reduce((sums, sum) => sums.map((one, n) => one + sum[n]), Array(width).fill(0));
  for (const [, sums] of named) sums.forEach((sum, n) => { rest[n] -= sum; });
  return rest[0] ? [...named, [OTHER, rest]] : named;
}

function showEnds() {
  for (const role of ["entry", "exit"]) {
    const counts = tally(role, state, 3), all = counts && total(counts), filter = placeOfRole(role);
    const rows = counts && topPages(counts, 3);
    const missing = counts && figures(state).sessions - all;
    const converts = role === "entry" && measures.some((one) => one.id === "converted");
    table(role, `${role} pages`, [{ title: "Page", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" },
      ...(converts ? [{ title: "Conversion rate", kind: "share" }] : [])],
      rows && rows.map(([place, [count, converted, known]]) => [page(place), count, ratio(count, all), ...(converts ? [ratio(converted, known)] : [])]), {
        pick: (line) => pickOf(filter, filter < 0 || rows[line][0] < 0 ? null : placeOf(filter, `=${given.pages[rows[line][0]]}`)),
      });
    element(role).querySelector(".note").textContent = [without(missing, `known ${role} page`), pagesNamed(role)].join(" ");
  }
}

function showViews() {
  const counts = tally("viewed", state, 2), all = counts && total(counts);
  table("views", "Top pages", [{ title: "Page", kind: "text" }, { title: "Page views", kind: "count", bar: true }, { title: "Share", kind: "share" }, { title: "Sessions", kind: "count" }],
    given.columns.views ? counts && topPages(counts).map(([place, [views, sessions]]) => [page(place), views, ratio(views, all), place === OTHER ? null : sessions]) : []);
  element("views").querySelector(".note").textContent = `The counts in ${given.columns.views}. ${given.columns.views ? pagesNamed("viewed") : ""}`;
}

function showCohorts() {
  const monday = Math.round(given.first / DAY + 3) % 7;
  const week = (t) => Math.floor((t + monday) / 7);
  const start = (w) => given.first + (w * 7 - monday) * DAY;
  const isOpen = (w) => !isOver((w + 1) * 7 - monday - 1);
  const counted = cohortsOf(state.choice), last = week(state.to);
  const rows = [...(counted?.times ?? [])].filter(([first]) => first >= week(state.from) && first <= last).sort((a, b) => a[0] - b[0]).map(([first, list]) => {
    const found = new Map();
    for (let n = 0; n < list.length; n += 2) found.set(list[n], list[n + 1]);
    return { first, size: found.get(0), found };
  });
  const shownWeeks = Math.max(0, ...rows.map((row) => Math.min(last - row.first, 12)));
  const later = Array.from({ length: shownWeeks }, (_, n) => n + 1);
  table("cohorts", "Users by the week of their first session", [
    { title: "Week of", kind: "text" }, { title: "Users", kind: "count" }, ...later.map((n) => ({ title: `+${n} wk`, kind: "heat" })),
  ], counted ? rows.map((row) => [new Date(start(row.first)).toISOString().slice(0, 10) + (isOpen(row.first) ? " (not over)" : ""), row.size, ...later.map((n) => (row.first + n > last ? null : ratio(row.found.get(n) ?? 0, row.size)))]) : null, {
    open: (n, c) => c > 0 && isOpen(rows[n].first + c - 1),
  });
  if (counted) element("cohorts").hidden = !later.length;
  element("cohorts").querySelector(".note").textContent = "The share of a week's users who have a session in a later week. Hatched weeks aren't over. Weeks start on Monday and count whole; a first session is the first among these rows under the chosen filters.";
}

// All measures of both segments.
function showSegments() {
  const lines = hasSegments() ? [state, before()].map((at) => ({ at, sums: figures(at) })) : [];
  const row = (name, kind, of) => {
    const [a, b] = lines.map(of), isShare = kind === "share";
    const moved = a === null || b === null ? null : isShare ? a - b : ratio(a - b, b);
    const size = known(moved, () => ours(isShare ? formats.change(moved).replace("%", " pts") : formats.change(moved)));
    return [name, { kind, value: a }, { kind, value: b }, size];
  };
  const rows = !lines.length ? [] : measures.filter((one) => !(one.isGoal && one.kind === "count")).flatMap(({ name, kind, of, median }) => [
    row(name, kind, ({ sums }) => of(sums)),
    ...(median ? [row(`${name}, median${given.shown[median] === null ? "" : ", rounded down"}`, kind, ({ at }) => medianOf(median, at))] : []),
  ]);
  table("segments", "Two segments", [{ title: "Figure", kind: "text" }, { title: hasSegments() ? segmentOf(0) : "", kind: "own" }, { title: hasSegments() ? segmentOf(1) : "", kind: "own" }, { title: "Difference", kind: "difference" }], rows);
}

function showGoals() {
  const was = before(), now = figures(state), then = was && figures(was);
  const shareOf = ({ sum }) => (sums) => share(sums, sum);
  table("goals", "Goals", [
    { title: "Goal", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" },
    ...(was ? [{ title: hasSegments() ? segmentOf(1) : "Before", kind: "share" }] : []),
  ], has.goals.length ? goals.map((goal) => [goal.name, now[goal.sum] ?? 0, shareOf(goal)(now), ...(was ? [shareOf(goal)(then)] : [])]) : [], {
    pick: (line) => () => choose({ measure: `${goals[line].id}-share` }), does: "Draw it over time",
  });
}

// Sessions by weekday and hour, or the chosen figure if it adds up over days.
function showBusy() {
  const chosen = measures.find((one) => one.id === state.measure), choice = state.choice;
  const measure = isByHour(chosen, choice) && !chosen.isOfUsers ? chosen : measures[0];
  const monday = Math.round(given.first / DAY + 3) % 7, days = WEEKDAYS.map(() => 0);
  const hasHours = isByHour(measure, choice), weekdayOf = (t) => (monday + t) % 7;
  for (let t = state.from; t <= state.to; t += 1) days[weekdayOf(t)] += 1;
  const values = hasHours ? weekly({ from: state.from, to: state.to, choice }, weekdayOf).map((row) => row.map((one) => measure.of(one))) : [];
  const title = `${measure.name} by weekday and hour`, shownDays = WEEKDAYS.flatMap((_, n) => (days[n] ? [n] : []));
  const place = element("busy"), isThere = shownDays.length && values.flat().some((value) => value);
  place.querySelector("h3").textContent = title;
  table("busy", title, [{ title: "Hour", kind: "text" }, ...shownDays.map((n) => ({ title: WEEKDAYS[n], kind: measure.kind }))],
    !hasHours ? null : isThere ? HOURS.map((hour) => [clock(hour), ...shownDays.map((n) => values[n][hour])]) : []);
  const [one] = days, areEqual = days.every((count) => count === one);
  const names = areEqual ? `${one} of each weekday` : shownDays.map((n) => counted(days[n], WEEKDAYS[n])).join(", ");
  const said = (n, hour) => `${WEEKDAYS[n]} ${clock(hour)}: ${values[n][hour] === null ? "–" : formats[measure.kind](values[n][hour])}`;
  place.querySelector(".note").textContent = `${measure.kind === "count" || measure.id === "value" ? "The sum over these days" : "Over these days together"}: ${names}. Arrow keys move through the map.`;
  place.querySelector("details").hidden = !hasHours;
  drawMap(place.querySelector(".map"), title, hasHours && isThere ? shownDays : [], values, said);
}

// A grid of which one cell has the focus, as a keyboard moves through it.
function drawMap(place, title, shownDays, values, said) {
  const most = Math.max(0, ...values.flat().map((value) => value ?? 0));
  if (!shownDays.length) { place.replaceChildren(); return; }
  const line = made("p", null, { className: "note" }), peak = shownDays.find((n) => values[n].includes(most));
  line.setAttribute("aria-hidden", "true");
  line.textContent = `Most: ${said(peak, values[peak].indexOf(most))}`;
  const cells = shownDays.map((n) => HOURS.map((hour) => {
    const cell = made("td", null, { className: "heat", tabIndex: -1, title: said(n, hour) });
    cell.setAttribute("aria-label", said(n, hour));
    cell.style.setProperty("--share", `${most ? (100 * Math.max(values[n][hour] ?? 0, 0)) / most : 0}%`);
    cell.addEventListener("focus", () => { line.textContent = said(n, hour); });
    return cell;
  }));
  cells[0][0].tabIndex = 0;
  const rows = cells.map((row, n) => made("tr", [made("th", WEEKDAYS[shownDays[n]].slice(0, 3), { scope: "row", title: WEEKDAYS[shownDays[n]] }), ...row]));
  const head = made("tr", [made("td", null), ...HOURS.map((hour) => made("th", String(hour), { scope: "col" }))]);
  const grid = made("table", [made("thead", head), made("tbody", rows)]);
  grid.setAttribute("role", "grid");
  grid.setAttribute("aria-label", title);
  grid.addEventListener("keydown", (event) => {
    const row = cells.findIndex((one) => one.includes(document.activeElement)), hour = cells[row]?.indexOf(document.activeElement);
    const moves = { ArrowLeft: [row, hour - 1], ArrowRight: [row, hour + 1], ArrowUp: [row - 1, hour], ArrowDown: [row + 1, hour], Home: [row, 0], End: [row, 23] };
    const [y, x] = moves[event.key] ?? [], next = cells[y]?.[x];
    if (row < 0 || !moves[event.key]) return;
    event.preventDefault();
    if (!next) return;
    cells[row][hour].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  place.replaceChildren(grid, line);
}

const EDGES = [0, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].map((s) => s * 1000);
const QUANTILES = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99];

// The smallest value that is not below so large a part of all: `quantile_disc` of SQL.
function quantile(counts, part) {
  const all = total(counts);
  let seen = 0;
  for (const [value, [count]] of [...counts].sort((a, b) => a[0] - b[0])) {
    seen += count;
    if (seen >= part * all - 1e-9) return value;
  }
  return null;
}

function showLengths() {
  const lengths = tally("lengths", state), all = lengths && total(lengths);
  const bins = EDGES.map(() => 0);
  for (const [length, [count]] of lengths ?? []) bins[EDGES.findLastIndex((edge) => edge <= length)] += count;
  const used = bins.flatMap((count, n) => (count ? [n] : []));
  const rows = bins.map((count, n) => [n + 1 < EDGES.length ? `${brief(EDGES[n])} to ${brief(EDGES[n + 1])}` : `${brief(EDGES[n])} or more`, count, ratio(count, all)]);
  table("lengths", "Duration", [{ title: "Duration", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" }],
    lengths && (all ? rows.slice(used[0], used.at(-1) + 1) : []));
  element("lengths").querySelector(".note").textContent = given.ends_with === "session_end"
    ? "From the first event to session_end. These rows have no last_event_time, so each duration contains the gap." : "From the first event to the last.";
  const sums = figures(state), digits = given.shown.lengths;
  const lines = [["Duration", "time", lengths, sums.longest], ...("sizes" in given.shown ? [["Events", "count", tally("sizes", state), sums.most_events]] : [])];
  table("quantiles", "Percentiles", [{ title: "Percentile", kind: "text" }, ...lines.map(([title, kind]) => ({ title, kind }))],
    !lengths ? null : !all ? [] : [...QUANTILES.map((part) => [`${part * 100}%${part === 0.5 ? " (median)" : ""}`, ...lines.map(([, , counts]) => counts && quantile(counts, part))]),
      ["maximum", ...lines.map(([, , , most]) => most)]]);
  element("quantiles").querySelector(".note").textContent = `This share of sessions is at most as long.${digits === null ? "" : ` Durations but the maximum are rounded down to ${counted(digits, "digit")}.`}`;
  const reasons = tally("closings", state), ended = reasons && total(reasons);
  table("closings", "Ended by", [{ title: "Reason", kind: "text" }, { title: "Sessions", kind: "count", bar: true }, { title: "Share", kind: "share" }],
    given.closings.length ? reasons && [...reasons].sort((a, b) => b[1][0] - a[1][0]).map(([place, [count]]) => [label(given.closings, place, "all other reasons"), count, ratio(count, ended)]) : []);
}

// All that are as long as the longest of those that aren't listed: others may hide between shorter ones.
function showLongest() {
  const tests = tested(state.choice), listed = given.longest, [{ cells }] = cubes;
  const longest = chosenCells(cubes[0], state).reduce((most, n) => Math.max(most, cells.unlisted[n] ?? -1), -1);
  const rows = listed.t.flatMap((t, n) => (t >= state.from && t <= state.to && listed.length[n] >= longest && fits(tests, listed, n) ? [n] : [])).slice(0, 10);
  const events = given.columns.events;
  table("longest", "Longest sessions", [{ title: "Session", kind: "code" }, { title: "Began", kind: "moment" }, { title: "Duration", kind: "time" }, ...(events ? [{ title: "Events", kind: "count" }] : [])],
    rows.length || longest < 0 ? rows.map((n) => [listed.id[n] ?? ours("no session_id"), listed.clock[n], listed.length[n], ...(events ? [listed.events[n]] : [])]) : null);
  const few = rows.length < 10 && longest >= 0 ? " The page lists no others for these days and filters." : "";
  element("longest").querySelector(".note").textContent = `The names of the sessions, by which their rows are found; this page doesn't say whose they are.${few}`;
}

const brief = (ms) => span(ms).replace(/ 0+[smh]$/, "");

function showRejected() {
  const all = given.rejected, sums = new Map();
  (all.t ?? []).forEach((t, n) => {
    if (t !== null && (t < state.from || t > state.to)) return;
    const of = JSON.stringify([t === null, all.kind[n], all.reason[n]]);
    sums.set(of, (sums.get(of) ?? 0) + all.counted[n]);
  });
  const rows = [...sums].map(([of, count]) => [...JSON.parse(of), count]).sort((a, b) => a[0] - b[0] || b[3] - a[3]);
  table("rejected", "Rows outside sessions", [{ title: "Kind", kind: "text" }, { title: "Reason", kind: "text" }, { title: "When", kind: "text" }, { title: "Rows", kind: "count", bar: true }],
    rows.map(([isElsewhere, kind, reason, count]) => [kind, label(given.reasons, reason, "all other reasons"), ours(isElsewhere ? "outside the days of the sessions" : "in the chosen days"), count]));
  element("rejected").hidden = false;
  const note = element("rejected").querySelector(".note");
  if (!all.t) note.textContent = "The table that this page was made from has sessions alone. So what came too late, came twice or was broken isn't counted here.";
  else if (!rows.length) note.textContent = "None in the chosen days.";
  else note.textContent = `Counted by the day of their event. ${filters.length ? "They have no session, so filters don't apply to them." : ""}`;
}

function showWords() {
  const words = [
    ["Sessions", `Counted on the day, in ${given.zone}, on which they began. Of a session with several revisions, the last one counts.`],
    ["Users", `Identified by ${given.columns.keys.join(", ")}; each counts once in the chosen days. A dash: the page can't count them exactly for so many days or filters.`],
    ["New users", given.columns.number ? `Users whose first session, by ${given.columns.number}, is among the chosen ones.` : "Users whose first session in these rows is among the chosen ones."],
    ["Users seen before", "Users of the chosen sessions who had a session before the chosen days."],
    ["Users with 2+ sessions", "Users with two or more of the chosen sessions."],
    given.columns.value && ["Revenue", `The sum of ${given.columns.value}${has.currency ? `, in ${has.currency}` : ""}. Revenue per user leaves out sessions without a user.`],
    given.columns.views && ["Page views", `The sum of the counts in ${given.columns.views}.`],
    given.columns.engaged_time && ["Engaged time", `The average of ${given.columns.engaged_time}.`],
    [durationName, `The average, ${given.ends_with === "session_end" ? "from the first event to session_end, the gap included" : "from the first event to the last"}.`],
    measures.some((one) => one.id === "converted") && ["Conversion rate", given.columns.converted ? `The share of sessions with ${given.columns.converted}.` : `The share of sessions that reached ${steps.at(-1)} and all steps before it.`],
  ].filter(Boolean);
  element("words").replaceChildren(...words.flatMap(([word, text]) => [made("dt", word), made("dd", text)]));
}

// ---- the page --------------------------------------------------------------------------------

function show() {
  for (const part of [showChoice, showCards, showSegments, showTime, showBusy, showBy, showGoals, showFunnel, showViews, showPaths, showEnds, showCohorts, showLengths, showLongest, showRejected]) part();
  for (const section of document.querySelectorAll("section")) section.hidden = [...section.querySelectorAll("article")].every((one) => one.hidden);
  // Tells whoever waits for it that all is drawn.
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
}

function choose(changed) {
  Object.assign(state, { lost: [] }, changed);
  const active = document.activeElement?.dataset.measure;
  // In a frame of a notebook there is no address to write to.
  try { if (address() !== location.hash) history.pushState(null, "", address()); } catch { /* nothing is remembered */ }
  show();
  if (active) document.querySelector(`[data-measure="${active}"]`).focus();
}

function addFilter(n) {
  for (const [name, end] of [["choice", element("clear")], ["other", null]]) {
    const options = placesOf(n).map((place) => new Option(visible(plain(valueLabel(n, place))), nameOf(n, place)));
    const select = made("select", [new Option("all", ""), ...options], { id: `${name}${n}` });
    select.addEventListener("change", () => choose({ [name]: state[name].with(n, placeOf(n, select.value)) }));
    element(end ? "filters" : "other").insertBefore(made("label", [titleOf(filters[n]), select]), end);
  }
}

function build() {
  const sessions = cubes[0].cells.sessions.reduce((sum, count) => sum + count, 0);
  element("about").textContent = `${counted(sessions, "session")} from ${shownDays(0, DAYS - 1)}; days are in ${given.zone}.`;
  document.querySelector(".presets").append(...[...spans, DAYS].map((days) => {
    const button = made("button", days < DAYS ? counted(days, "day") : "All", { type: "button" });
    button.dataset.days = days;
    button.addEventListener("click", () => choose(lastDays(days)));
    return button;
  }));
  element("from").addEventListener("change", (event) => { const from = unitOf(event.target.value, false); choose({ from, to: Math.max(state.to, from) }); });
  element("to").addEventListener("change", (event) => { const to = unitOf(event.target.value, true); choose({ to, from: Math.min(state.from, to) }); });
  element("compare").append(...Object.entries(comparisons).map(([id, { name }]) => new Option(name, id)));
  element("compare").addEventListener("change", (event) => choose({ compare: event.target.value }));
  const group = (title, isGoal) => Object.assign(made("optgroup", measures.filter((one) => Boolean(one.isGoal) === isGoal).map((one) => new Option(one.name, one.id))), { label: title });
  element("measure").append(group("Key figures", false), ...(reaches.length ? [group("Goals and steps", true)] : []));
  element("measure").addEventListener("change", (event) => choose({ measure: event.target.value }));
  NAMES.forEach((_, n) => element(`name${n}`).addEventListener("change", (event) => choose({ names: state.names.with(n, event.target.value.trim()) })));
  element("each").addEventListener("change", (event) => choose({ each: event.target.value }));
  element("clear").addEventListener("click", () => choose({ choice: filters.map(() => null) }));
  filters.forEach((_, n) => addFilter(n));
  element("by-which").append(...dimensions.map((n) => new Option(visible(filters[n].name), n)));
  element("by-which").addEventListener("change", (event) => choose({ by: Number(event.target.value) }));
  showWords();
  show();
  let width = innerWidth;
  paper.addEventListener("change", showTime);
  for (const [name, is] of [["beforeprint", true], ["afterprint", false]]) addEventListener(name, () => { isPrinting = is; showTime(); });
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; showTime(); } });
  addEventListener("popstate", () => { recall(); show(); });
}

recall();
build();
