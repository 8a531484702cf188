/*
 * Which results of a search come first: pages that explain, then reference pages, then public
 * names, attributes last. Someone who types a name as it is written in code gets that name.
 * `MEANT` says by which words people look for a page, whether its text has them or not: `conf.py`
 * reads it as JSON, and adds the words to what is indexed of the page.
 */
"use strict";

const FOLDERS = {
  index: 100, tutorial: 100, "how-to": 100, explanation: 90, cookbook: 80, reference: 60, pages: 60,
  builders: 40, benchmarks: 40,
};
const MEANT = {
  "airflow": ["tutorial/whole-programs", "how-to/backfill"],
  "append output mode": ["how-to/windowed-aggregation", "how-to/troubleshoot"],
  "applyinpandaswithstate": ["how-to/from-hand-written-code"],
  "azure": ["explanation/which-tool"],
  "backlog": ["how-to/backfill"],
  "beam": ["explanation/which-tool"],
  "bot": ["cookbook/bots"],
  "bounce rate": ["tutorial/analyst", "how-to/combine-aggregates"],
  "bytewax": ["explanation/which-tool"],
  "ci": ["tutorial/whole-programs", "how-to/test-a-spec"],
  "conversion": ["cookbook/conversion", "tutorial/analyst", "how-to/funnels-and-paths"],
  "cron": ["tutorial/whole-programs", "how-to/backfill"],
  "csv": ["tutorial/whole-programs", "how-to/read-from-kafka-and-files"],
  "daily": ["tutorial/whole-programs", "how-to/backfill"],
  "databricks": ["how-to/databricks"],
  "dbt": ["how-to/dbt", "explanation/which-tool"],
  "deduplication": ["how-to/deduplicate"],
  "delete a user": ["how-to/erase-a-user"],
  "delta": ["how-to/write-to-postgres", "tutorial/whole-programs"],
  "dropduplicates": ["how-to/deduplicate"],
  "duckdb": ["how-to/without-java", "explanation/which-tool"],
  "duplicates": ["how-to/deduplicate"],
  "early results": ["how-to/early-results"],
  "empty": ["how-to/troubleshoot"],
  "error": ["how-to/troubleshoot"],
  "exactly once": ["how-to/write-to-tables", "how-to/write-to-postgres"],
  "fakegroupstate": ["reference/api/sessionkit.testing", "how-to/test-a-spec"],
  "flatmapgroupswithstate": ["how-to/from-hand-written-code", "explanation/which-tool"],
  "flink": ["explanation/which-tool"],
  "foreachbatch": ["how-to/start-a-query", "how-to/your-own-sink"],
  "funnel": ["how-to/funnels-and-paths", "cookbook/funnel"],
  "ga4": ["how-to/common-definitions"],
  "gaps and islands": ["tutorial/analyst", "how-to/choose-a-gap"],
  "gdpr": ["how-to/erase-a-user"],
  "google analytics": ["how-to/common-definitions"],
  "handle late data": ["how-to/rejected-rows", "how-to/troubleshoot"],
  "idempotent": ["how-to/write-to-tables", "how-to/your-own-sink"],
  "inactivity": ["how-to/choose-a-gap", "how-to/idle-sources", "how-to/state-per-key"],
  "install": ["index", "how-to/without-java"],
  "java": ["how-to/without-java", "index"],
  "kafka": ["how-to/read-from-kafka-and-files", "how-to/write-to-tables", "tutorial/whole-programs"],
  "kafka streams": ["explanation/which-tool"],
  "lag": ["how-to/watch-a-query", "how-to/backfill"],
  "late": ["how-to/troubleshoot", "how-to/rejected-rows", "how-to/early-results"],
  "late data": ["how-to/rejected-rows", "how-to/troubleshoot", "how-to/early-results"],
  "llm": ["tutorial/whole-programs"],
  "mapgroupswithstate": ["how-to/from-hand-written-code", "how-to/state-per-key"],
  "memory": ["how-to/clusters", "how-to/operate"],
  "midnight": ["how-to/cut-sessions"],
  "multiple watermarks": ["how-to/watermarks"],
  "no output": ["how-to/troubleshoot"],
  "no rows": ["how-to/troubleshoot"],
  "out of memory": ["how-to/clusters", "how-to/troubleshoot"],
  "output mode": ["how-to/start-a-query", "how-to/windowed-aggregation"],
  "parquet": ["tutorial/whole-programs", "how-to/read-from-kafka-and-files"],
  "per event": ["how-to/number-events"],
  "postgres": ["how-to/write-to-postgres", "tutorial/whole-programs"],
  "prometheus": ["how-to/watch-a-query"],
  "pytest": ["how-to/test-a-spec"],
  "replay": ["how-to/backfill"],
  "restart": ["how-to/restart"],
  "revenue": ["tutorial/analyst", "how-to/make-a-report", "how-to/aggregate-sessions"],
  "risingwave": ["explanation/which-tool"],
  "rocksdb": ["how-to/operate", "how-to/clusters"],
  "scala": ["how-to/from-hand-written-code"],
  "schema evolution": ["how-to/change-a-rule", "how-to/restart"],
  "session timeout": ["how-to/choose-a-gap", "how-to/state-per-key", "tutorial/first-session-job"],
  "session_window": ["explanation/which-tool", "how-to/windowed-aggregation"],
  "sink": ["how-to/write-to-tables", "how-to/start-a-query", "how-to/your-own-sink"],
  "snowplow": ["how-to/common-definitions", "reference/what-others-have"],
  "sql": ["explanation/which-tool", "how-to/aggregate-sessions"],
  "state grows": ["how-to/clusters", "how-to/troubleshoot", "how-to/operate"],
  "stuck": ["how-to/troubleshoot"],
  "test": ["how-to/test-a-spec"],
  "time zone": ["tutorial/analyst", "how-to/make-a-report", "how-to/cut-sessions"],
  "timeout": ["how-to/state-per-key", "explanation/timers"],
  "transformwithstate": ["how-to/from-transform-with-state"],
  "ttl": ["how-to/state-per-key", "reference/stateful-spec"],
  "tumbling window": ["how-to/windowed-aggregation"],
  "type hints": ["reference/types"],
  "unbounded state": ["how-to/deduplicate", "how-to/clusters"],
  "unit test": ["how-to/test-a-spec"],
  "upsert": ["how-to/write-to-tables", "how-to/write-to-postgres"],
  "user left": ["cookbook/churn"],
  "watermark": ["how-to/watermarks"]
};
// How the texts of our errors begin, by page: `conf.py` adds them to the page of the search.
const TEXTS = typeof ERRORS === "undefined" ? [] : Object.entries(ERRORS).flatMap(
  ([page, { token, heads }]) => heads.map((head) => ({ page, token, head: head.split(" ") })));
const HOLE = "\u2026";
const PASTED = /[`(]/;
const IN_CODE = /[_.]|[a-z][A-Z]/;

// Of the phrases that a query has, the longest are meant: "late data" rather than "late".
const places = (page, query) => {
  const said = ` ${query.replaceAll(/\s+/g, " ")} `;
  const has = (phrase) => said.includes(` ${phrase} `);
  const found = Object.keys(MEANT).filter(has);
  const longest = found.filter((one) => !found.some((other) => other !== one && other.includes(one)));
  return longest.map((phrase) => MEANT[phrase].indexOf(page)).filter((place) => place >= 0);
};
// Equal pages come in the order of how much of the query their titles have, not of the alphabet.
const inTitle = (title, query) => {
  const words = query.split(/\s+/).filter(Boolean);
  return words.filter((word) => title.toLowerCase().includes(word)).length / (words.length || 1);
};

const wordsOf = (query) =>
  query.split(/[^\p{Letter}\p{Number}_\p{Emoji_Presentation}]+/gu).filter(Boolean);
// How many words of a text the query has, in their order, with any values in its holes, and
// whether it has all of them.
const common = (head, words) => {
  let [at, count, afterHole] = [0, 0, false];
  for (const word of head) {
    if (word === HOLE) {
      afterHole = true;
      at += 1;
      continue;
    }
    const place = afterHole ? words.indexOf(word, at) : at;
    if (place < 0 || place >= words.length) return [count, false];
    if (words[place] !== word) return [0, false];
    [at, count, afterHole] = [place + 1, count + 1, false];
  }
  return [count, true];
};
// The page of the error whose text a query is. What has a name in marks is pasted, not asked.
const errorOf = (query) => {
  const words = wordsOf(query.toLowerCase());
  const [whole, part] = PASTED.test(query) ? [1, 3] : [3, 4];
  const found = TEXTS.map((one) => ({ ...one, fits: common(one.head, words) }))
    .filter(({ fits: [count, isWhole] }) => count >= (isWhole ? whole : part));
  return found.sort((a, b) => b.fits[0] - a.fits[0])[0];
};
// A word that all pages of an error have, in place of words that none has, such as a column's name.
var splitQuery = (query) => {
  const error = errorOf(query);
  return error ? [error.token] : wordsOf(query);
};

var Scorer = {
  score: ([page, title, , described, score]) => {
    const query = new URLSearchParams(window.location.search).get("q")?.trim() ?? "";
    if (page.startsWith("reference/api/") && !places(page, query.toLowerCase()).length) {
      const isMember = /^Python (attribute|property|method)/.test(described ?? "");
      const isMeant = IN_CODE.test(query) && `.${title}`.endsWith(`.${query}`);
      return score + (isMeant ? 200 : 0) - (isMember ? 20 : 0);
    }
    const words = query.toLowerCase();
    const isOfError = errorOf(query)?.page === page;
    const meant = places(page, words).reduce((sum, place) => sum + 100 - 10 * place, 0)
      + (isOfError ? 200 : 0);
    return score + (FOLDERS[page.split("/")[0]] ?? 0) + 20 * inTitle(title, words) + meant;
  },
  // As Sphinx has them.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
