// SPDX-License-Identifier: GPL-2.0-or-later
"use strict";
(() => {
  const rows = document.querySelector("[data-rows]");
  if (!rows) return;
  const body = rows.tBodies ? rows.tBodies[0] : rows;
  const box = document.getElementById("filter");
  const filter = () => {
    const wanted = box.value.toLowerCase();
    for (const row of body.children)
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
  };
  if (box) {
    box.parentElement.hidden = false;
    box.addEventListener("input", filter);
  }
  const unsort = () => {
    for (const head of rows.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  };
  if (rows.tHead) [...rows.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      unsort();
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[at].textContent.trim();
      const sorted = [...body.rows].sort((a, b) =>
        key(a).localeCompare(key(b), "en", {numeric: true}) * (down ? -1 : 1));
      body.append(...sorted);
    });
  });
})();
