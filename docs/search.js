/*
 * Which results of a search come first: pages that explain, then reference pages, then public
 * names, attributes last. Someone who types a name as it is written in code gets that name.
 * For words that stand on most pages, `MEANT` says which pages are about them.
 */
"use strict";

const FOLDERS = {
  index: 100, tutorial: 100, "how-to": 100, explanation: 90, cookbook: 80, reference: 60, pages: 60,
  builders: 40, benchmarks: 40,
};
const MEANT = {
  install: ["index", "how-to/without-java"],
  java: ["how-to/without-java", "index"],
  late: ["how-to/empty-output", "how-to/rejected-rows", "how-to/early-results"],
  empty: ["how-to/empty-output"],
  "time zone": ["tutorial/analyst", "how-to/make-a-report", "how-to/cut-sessions"],
  revenue: ["tutorial/analyst", "how-to/make-a-report", "how-to/aggregate-sessions"],
  sink: ["how-to/write-to-tables", "how-to/start-a-query", "how-to/your-own-sink"],
  "exactly once": ["how-to/write-to-tables", "how-to/write-to-postgres"],
  postgres: ["how-to/write-to-postgres"],
  kafka: ["how-to/read-from-kafka-and-files", "how-to/write-to-tables"],
  "per event": ["how-to/number-events"],
  test: ["how-to/test-a-spec"],
  error: ["how-to/troubleshoot"],
};
const IN_CODE = /[_.]|[a-z][A-Z]/;

const places = (page, query) =>
  Object.entries(MEANT)
    .filter(([word]) => query.includes(word))
    .map(([, pages]) => pages.indexOf(page))
    .filter((place) => place >= 0);

var Scorer = {
  score: ([page, title, , described, score]) => {
    const query = new URLSearchParams(window.location.search).get("q")?.trim() ?? "";
    if (page.startsWith("reference/api/")) {
      const isMember = /^Python (attribute|property|method)/.test(described ?? "");
      const isMeant = IN_CODE.test(query) && `.${title}`.endsWith(`.${query}`);
      return score + (isMeant ? 200 : 0) - (isMember ? 20 : 0);
    }
    const words = query.toLowerCase();
    const isAbout = words.split(/\s+/).every((word) => title.toLowerCase().includes(word));
    const meant = places(page, words).reduce((sum, place) => sum + 60 - 10 * place, 0);
    return score + (FOLDERS[page.split("/")[0]] ?? 0) + (isAbout ? 10 : 0) + meant;
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
