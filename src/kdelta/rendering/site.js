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

  // Any two kernels: the form of the data stands in pair_table() of rendering/site.py.
  const block = document.getElementById("pairs");
  if (!block) return;
  const data = JSON.parse(block.textContent);
  const from = document.getElementById("old"), to = document.getElementById("new");
  const classes = {R: "REGRESSION", I: "IMPROVEMENT", U: "UNDECIDED", X: "INVALID"};

  const change = ratio => {  // as the grid says it
    if (ratio >= 1.995) return `${ratio.toFixed(2)} times`;
    const percent = 100 * Math.abs(ratio - 1);
    const told = percent < 10 ? Number(percent.toPrecision(2)) : percent.toFixed(0);
    return `${told} % ${ratio > 1 ? "more" : "less"}`;
  };

  const answer = (scenario, old, next) => {
    const counted = scenario.runs[scenario.rows[old]];
    let left = data.kernels.length - next;
    for (let at = counted.length; at > 0; at -= 2) {
      left -= counted[at - 2];
      if (left <= 0) return scenario.answers[counted[at - 1]];
    }
  };

  const reason = ([kind, ...numbers]) => kind === undefined ? "" :
    data.reasons[kind].map((text, at) => text + (numbers[at] ?? "")).join("");

  const compared = (old, next) => old >= next ? [] : data.scenarios.flatMap(scenario => {
    const [letter, ...why] = answer(scenario, old, next);
    if (letter === "-") return [];
    const other = (scenario.apart ?? []).find(one => one[0] === old && one[1] === next);
    const [was, now] = other ? other.slice(2)
      : [old, next].map(kernel => scenario.values[scenario.of[kernel]]);
    const ratio = was[1] ? now[1] / was[1] : 0;
    const size = ratio ? Math.max(ratio, 1 / ratio) : 0;
    return [{letter, scenario, was, now, ratio, size, note: reason(why)}];
  }).sort((a, b) => b.size - a.size);

  if (!block.dataset.begin) return;
  const begin = block.dataset.begin.split(" ").map(Number);

  const cell = (text, kind) => {
    const made = document.createElement("td");
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  const line = ({letter, scenario, was, now, ratio, note}) => {
    const head = document.createElement("th"), link = document.createElement("a");
    head.scope = "row";
    link.href = scenario.page;
    for (const part of scenario.name.split(/(?<=[:_])/)) link.append(part, document.createElement("wbr"));
    head.append(link);
    const made = document.createElement("tr");
    const size = letter === "R" || letter === "I" ? change(ratio) : data.words[letter];
    const why = cell("", "words");
    if (note) for (const [at, part] of note.split(/(\S*--\S*)/).entries()) {
      const told = document.createElement("span");
      told.textContent = part;
      if (at % 2) told.className = "whole";
      why.append(told);
    }
    made.append(head, cell(was[0], "n"), cell(now[0], "n"),
      cell(ratio ? ratio.toFixed(3) : "", "n"), cell(size, classes[letter]), why);
    return made;
  };

  const show = () => {
    const names = [from, to].map(one => data.kernels[one.value]);
    const found = compared(Number(from.value), Number(to.value));
    const [more, less, part, ...unsure] = ["R", "I", "P", "U", "X"].map(
      letter => found.filter(one => one.letter === letter).length);
    document.getElementById("said").textContent = found.length
      ? `${names[1]} does more work than ${names[0]} in ${more} of ${found.length}` +
        ` scenario${found.length === 1 ? "" : "s"}, and less in ${less}` +
        (part ? `; in ${part} a part changed and the sum did not` : "") +
        ["U", "X"].map((letter, at) => unsure[at] ? `; ${unsure[at]} ${data.words[letter]}` : "")
          .join("") + "."
      : `No page compares ${names[0]} with ${names[1]}: choose an older kernel first, and a newer.`;
    unsort();
    body.replaceChildren(...found.map(line));
    filter();
  };

  const choose = (old, next) => {
    [from.value, to.value] = [old, next];
    show();
  };

  const asked = () => {
    try {
      const names = location.hash.slice(1).split("..").map(decodeURIComponent);
      const places = names.map(name => data.kernels.indexOf(name));
      if (places.length === 2 && !places.includes(-1) && compared(...places).length) {
        choose(...places);
        return true;
      }
    } catch (error) {
      if (!(error instanceof URIError)) throw error;
    }
    return false;
  };

  for (const list of [from, to]) {
    data.kernels.forEach((name, at) => list.append(new Option(name, at)));
    list.addEventListener("change", () => {
      const names = [from, to].map(one => encodeURIComponent(data.kernels[one.value]));
      history.replaceState(null, "", `#${names.join("..")}`);
      show();
    });
  }
  document.getElementById("choose").hidden = false;
  addEventListener("hashchange", () => {
    if (asked()) document.getElementById("choose").scrollIntoView();
  });
  if (!asked()) choose(...begin);
})();
