/*
 * Which results of a search come first: pages that explain, then reference pages, then public
 * names, attributes last. Someone who types a name as it is written in code gets that name.
 */
"use strict";

const FOLDERS = {
  tutorial: 100, "how-to": 100, explanation: 90, cookbook: 80, reference: 60, pages: 60,
};
const IN_CODE = /[_.]|[a-z][A-Z]/;

var Scorer = {
  score: ([page, title, , described, score, , kind]) => {
    const query = new URLSearchParams(window.location.search).get("q")?.trim() ?? "";
    if (page.startsWith("reference/api/")) {
      const isMember = /^Python (attribute|property|method)/.test(described ?? "");
      const isMeant = IN_CODE.test(query) && `.${title}`.endsWith(`.${query}`);
      return score + (isMeant ? 200 : 0) - (isMember ? 20 : 0);
    }
    const isAbout = title.toLowerCase().includes(query.toLowerCase());
    return score + (FOLDERS[page.split("/")[0]] ?? 0) + (isAbout ? 10 : 0);
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
