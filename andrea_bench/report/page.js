"use strict";
// Tooltips: a mark's own accessible text, on pointer and on touch.
const tip = document.getElementById("tip");
function showTip(event) {
  const mark = event.target.closest ? event.target.closest(".role-mark [aria-label]") : null;
  const text = mark ? mark.getAttribute("aria-label") : "";
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4)) + "px";
  const below = event.clientY + 18;
  tip.style.top = (below + box.height > innerHeight ? Math.max(4, event.clientY - box.height - 10) : below) + "px";
}
document.addEventListener("pointermove", showTip);
document.addEventListener("pointerdown", showTip);
document.addEventListener("scroll", () => { tip.hidden = true; }, true);

// A link to details opens them.
function openTarget() {
  const target = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (target && target.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

// All rows: sorted and filtered here, shown page by page.
const PAGE = 100;
const source = document.getElementById("rows-data");
if (source) {
  const data = JSON.parse(source.textContent);
  const count = data.count;
  const read = data.columns.map(column => column.words ? (i => column.words[column.at[i]]) : (i => column.values[i]));
  const names = data.columns.map(column => column.name);
  const status = names.indexOf("status");
  const texts = Array.from({ length: count }, (_, i) => read.map(get => get(i) ?? "").join("\n").toLowerCase());
  const search = document.getElementById("rows-search");
  const choice = document.getElementById("rows-status");
  const said = document.getElementById("rows-said");
  const body = document.querySelector("#rows-table tbody");
  const heads = Array.from(document.querySelectorAll("#rows-table th[data-column]"));
  let order = { column: -1, down: false };
  let first = 0;
  let shown = [];

  for (const value of new Set(Array.from({ length: count }, (_, i) => read[status](i)))) {
    choice.add(new Option(value, value));
  }

  function select() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const any = words.filter(word => /^[0-9a-f]{16}$/.test(word));
    const all = words.filter(word => !any.includes(word));
    shown = [];
    for (let i = 0; i < count; i++) {
      if (choice.value && read[status](i) !== choice.value) continue;
      if (any.length && !any.some(word => texts[i].includes(word))) continue;
      if (all.every(word => texts[i].includes(word))) shown.push(i);
    }
    if (order.column >= 0) {
      const get = read[order.column];
      const sign = order.down ? -1 : 1;
      // What is not known comes last, whichever the direction.
      shown.sort((a, b) => {
        const x = get(a), y = get(b);
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return (typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0) * sign || a - b;
      });
    }
    first = 0;
    draw();
  }

  function draw() {
    body.replaceChildren(...shown.slice(first, first + PAGE).map(line));
    const last = Math.min(first + PAGE, shown.length);
    said.textContent = shown.length ? `Rows ${first + 1} to ${last} of ${shown.length} (of ${count} in all)`
      : `No row of ${count} fits`;
    document.getElementById("rows-before").disabled = first === 0;
    document.getElementById("rows-after").disabled = last >= shown.length;
  }

  function line(i) {
    const row = document.createElement("tr");
    read.forEach((get, column) => {
      const cell = document.createElement("td");
      const value = get(i);
      if (data.columns[column].number) cell.className = "number";
      else if (value !== null && value.length > 70) cell.className = "long";
      cell.textContent = value === null ? "-" : value;
      row.append(cell);
    });
    const cell = document.createElement("td");
    if (data.shapes[i]) cell.append(picture(data.shapes[i]));
    row.append(cell);
    return row;
  }

  // The samples of a row from least to greatest.
  function picture(shape) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("width", shape.length * 6);
    svg.setAttribute("height", 20);
    svg.setAttribute("class", "shape");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `samples in ${shape.length} equal bins, least to greatest, 9 the fullest: ${shape}`);
    Array.from(shape, Number).forEach((height, at) => {
      const bar = document.createElementNS(space, "rect");
      bar.setAttribute("x", at * 6);
      bar.setAttribute("width", 5);
      bar.setAttribute("y", 20 - 2 * height);
      bar.setAttribute("height", 2 * height);
      bar.setAttribute("fill", "currentColor");
      svg.append(bar);
    });
    return svg;
  }

  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      const column = Number(head.dataset.column);
      order = { column, down: order.column === column && !order.down };
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      select();
    });
  }
  search.addEventListener("input", select);
  choice.addEventListener("change", select);
  document.getElementById("rows-before").addEventListener("click", () => { first -= PAGE; draw(); });
  document.getElementById("rows-after").addEventListener("click", () => { first += PAGE; draw(); });
  // "Its rows" beside an answer shows these alone.
  document.addEventListener("click", event => {
    const link = event.target.closest ? event.target.closest("a[data-cells]") : null;
    if (!link) return;
    search.value = link.dataset.cells;
    choice.value = "";
    select();
  });
  select();
}
