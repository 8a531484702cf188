// What the theme leaves out for readers without a mouse or a screen: names for its two landmarks,
// and a focus for code and tables that scroll.
"use strict";

document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages of the site");
document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Headings of the page");
for (const box of document.querySelectorAll("pre, .table-wrapper")) {
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}
