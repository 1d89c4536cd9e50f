{#- SPDX-License-Identifier: GPL-2.0-or-later -#}
"use strict";
(() => {
  const info = document.getElementById("info");
  const find = document.getElementById("find");
  const hits = document.getElementById("hits");
  const slack = 1e-7;
  const flames = [...document.querySelectorAll("svg.flame")].map((svg) => ({
    frames: [...svg.querySelectorAll("svg.f")].map((box) => ({
      box, x: +box.dataset.x, w: +box.dataset.w, row: +box.dataset.r, name: box.dataset.n,
    })),
  }));
  const within = (inner, outer) =>
    inner.x >= outer.x - slack && inner.x + inner.w <= outer.x + outer.w + slack;

  function zoom(flame, top) {
    for (const one of flame.frames) {
      const above = one.row < top.row && within(top, one);
      const shown = above || one === top || (one.row > top.row && within(one, top));
      one.box.classList.toggle("out", !shown);
      one.box.classList.toggle("above", above);
      const x = above ? 0 : (one.x - top.x) / top.w;
      one.box.setAttribute("x", `${100 * x}%`);
      one.box.setAttribute("width", `${above ? 100 : 100 * one.w / top.w}%`);
    }
  }

  function go(flame, to) {
    if (!to) return;
    for (const one of flame.frames) one.box.setAttribute("tabindex", one === to ? 0 : -1);
    to.box.focus();
  }

  function neighbour(flame, one, key) {
    const seen = flame.frames.filter((other) => !other.box.classList.contains("out"));
    const row = seen.filter((other) => other.row === one.row);
    if (key === "ArrowUp") return seen.find((other) => other.row === one.row - 1 && within(one, other));
    if (key === "ArrowDown") return seen.filter((other) => other.row === one.row + 1 && within(other, one))
      .sort((a, b) => b.w - a.w)[0];
    return row[row.indexOf(one) + (key === "ArrowRight" ? 1 : -1)];
  }

  function search() {
    const text = find.value.trim().toLowerCase();
    let told = "";
    for (const flame of flames) {
      let end = 0, share = 0, count = 0;
      for (const one of flame.frames)
        one.box.classList.toggle("hit", text !== "" && one.name.toLowerCase().includes(text));
      const found = flame.frames.filter((one) => one.box.classList.contains("hit"));
      for (const one of found.sort((a, b) => a.x - b.x || b.w - a.w)) {
        count++;
        if (one.x < end - slack) continue;
        share += one.w;
        end = one.x + one.w;
      }
      told += `${told && ", "}${count} with ${(100 * share).toFixed(1)} % of the width`;
    }
    hits.textContent = text && told;
  }

  for (const flame of flames)
    for (const one of flame.frames) {
      const tell = () => { info.textContent = one.box.getAttribute("aria-label"); };
      one.box.addEventListener("mouseenter", tell);
      one.box.addEventListener("focus", tell);
      one.box.addEventListener("click", () => { zoom(flame, one); go(flame, one); });
      one.box.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") zoom(flame, one);
        else if (event.key.startsWith("Arrow")) go(flame, neighbour(flame, one, event.key));
        else return;
        event.preventDefault();
      });
    }
  function back() { for (const flame of flames) if (flame.frames.length) zoom(flame, flame.frames[0]); }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") back();
    if (event.key !== "/" || event.target === find) return;
    find.focus();
    event.preventDefault();
  });
  find.addEventListener("input", search);
  document.getElementById("back").addEventListener("click", back);
  for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
})();
