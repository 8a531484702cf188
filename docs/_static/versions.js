// Lets a reader choose another version of the site, if `versions.json` lists more than this one.
// It has names and folders, from the newest on; `scripts/publish_docs.py` writes it.
"use strict";

const root = new URL(document.documentElement.dataset.content_root, location.href);

async function openVersion(folder) {
  const start = new URL(folder, root);
  const samePage = new URL(location.href.slice(root.href.length), start);
  const { ok } = await fetch(samePage, { method: "HEAD" });
  location.href = ok ? samePage : start;
}

async function showVersions() {
  const versions = await (await fetch(new URL("versions.json", root))).json();
  if (versions.length < 2) return;
  const select = document.createElement("select");
  select.ariaLabel = "Version";
  for (const { name, folder } of versions) {
    const here = new URL(folder, root).href === root.href;
    select.add(new Option(name, folder, here, here));
  }
  select.onchange = () => openVersion(select.value);
  document.querySelector(".sidebar-brand").after(select);
}

// A page that is opened from a disk can't fetch anything.
if (location.protocol !== "file:") showVersions();
