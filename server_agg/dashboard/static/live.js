// Polls the open round; without JavaScript the page is complete but static.
"use strict";

const PERIOD_MS = 1000;
const LOST_MS = 5000;
const part = (id, from = document) => from.getElementById(id);

async function fetched(url) {
  const response = await fetch(url, { cache: "no-store" });
  if (!response.ok) throw new Error(`${response.status}`);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

async function refresh() {
  const old = part("live");
  const fresh = part("live", await fetched(old.dataset.url));
  if (fresh.dataset.round !== old.dataset.round) {
    // A round has closed: totals, charts and tables have changed too.
    const page = await fetched(location.pathname + location.search);
    document.title = page.title;
    part("main").replaceWith(part("main", page));
  } else if (fresh.outerHTML !== old.outerHTML) {
    old.replaceWith(fresh);
  }
  const said = part("said");
  if (said.textContent !== fresh.dataset.said) said.textContent = fresh.dataset.said;
}

async function loop() {
  let wait = PERIOD_MS;
  if (!document.hidden) {
    try {
      await refresh();
      part("lost").hidden = true;
    } catch {
      part("lost").hidden = false;
      wait = LOST_MS;
    }
  }
  setTimeout(loop, wait);
}

setTimeout(loop, PERIOD_MS);
