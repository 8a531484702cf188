// The theme has two landmarks of one kind: each gets a name of its own.
"use strict";

document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages of the site");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Headings of the page");
