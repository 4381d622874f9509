
// The heat map of ranks: sorted by any column, read by pointer or arrow keys. Without this it is a table by rank.
(() => {
  const table = document.querySelector("table.heat");
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], readout = document.getElementById("heat-readout");
  for (const one of document.querySelectorAll("#ranks .live")) one.hidden = false;
  const number = (cell) => parseFloat(cell.textContent.replace(/[<>,]/g, ""));
  const sort = (at) => {
    const text = heads[at].dataset.kind === "text";
    const first = text || heads[at].dataset.kind === "number" ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = heads[at].getAttribute("aria-sort") === first ? other : first;
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [row, text ? row.cells[at].textContent : number(row.cells[at])]);
    const unknown = (value) => (text ? value === "–" : Number.isNaN(value));
    rows.sort(([one, a], [two, b]) => {
      if (unknown(a) || unknown(b)) return unknown(a) - unknown(b);
      return sign * (text ? a.localeCompare(b) : a - b) || number(one.cells[0]) - number(two.cells[0]);
    });
    body.append(...rows.map(([row]) => row));
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[at].setAttribute("aria-sort", order);
    readout.textContent = `${rows.length.toLocaleString("en")} ranks, by ${names[at]}, ${order}. First: rank ${rows[0][0].cells[0].textContent}.`;
  };
  const names = heads.map((head, at) => {
    const name = head.textContent, button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => sort(at));
    head.replaceChildren(button);
    return name;
  });
  const tell = (cell) => {
    const head = heads[cell.cellIndex], row = cell.parentElement;
    const places = heads.flatMap((one, at) => one.dataset.kind === "number" && at && names[at] !== "Waits most for"
      ? [`${names[at].toLowerCase()} ${row.cells[at].textContent}`] : []);
    const unit = head.dataset.median?.split(" ")[1] ?? "";
    const median = head.dataset.median ? ` (median rank: ${head.dataset.median})` : "";
    const value = cell.cellIndex ? ` — ${names[cell.cellIndex]}: ${cell.textContent} ${unit}${median}` : "";
    readout.textContent = [`Rank ${row.cells[0].textContent}`, ...places].join(", ") + value;
  };
  const cellOf = (event) => event.target.closest("tbody td, tbody th");
  let stop = body.rows[0].cells[0];
  stop.tabIndex = 0;
  const focus = (cell) => {
    stop.removeAttribute("tabindex");
    stop = cell;
    stop.tabIndex = 0;
    stop.focus();
  };
  table.addEventListener("pointerover", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
  table.addEventListener("focusin", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
  table.addEventListener("click", (event) => { const cell = cellOf(event); if (cell) focus(cell); });
  table.addEventListener("keydown", (event) => {
    const cell = cellOf(event);
    if (!cell || event.ctrlKey || event.altKey || event.metaKey) return;
    const rows = [...body.rows], row = rows.indexOf(cell.parentElement), at = cell.cellIndex, last = heads.length - 1;
    const next = {
      ArrowUp: [row - 1, at], ArrowDown: [row + 1, at], ArrowLeft: [row, at - 1], ArrowRight: [row, at + 1],
      PageUp: [row - 10, at], PageDown: [row + 10, at], Home: [row, 0], End: [row, last],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const [to, column] = [Math.min(Math.max(next[0], 0), rows.length - 1), Math.min(Math.max(next[1], 0), last)];
    focus(rows[to].cells[column]);
  });
  // Of so many rows that they are some screens high, those that stand out come first.
  if (table.classList.contains("tiny")) sort(names.indexOf("Own work"));
})();
