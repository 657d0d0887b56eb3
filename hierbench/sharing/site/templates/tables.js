"use strict";
// Sorting and filtering of tables that are complete without it: buttons appear only where this script runs.
(() => {
  const text = (row, place) => row.cells[place].textContent.trim();
  const number = (row, place) => {
    const value = parseFloat(text(row, place).replace("−", "-"));
    return Number.isNaN(value) ? null : value;
  };

  function compare(kind, place, sign) {
    return (a, b) => {
      if (kind === "text") return sign * text(a, place).localeCompare(text(b, place), "en");
      const [one, other] = [number(a, place), number(b, place)];
      if (one === null || other === null) return (one === null) - (other === null); // what is missing comes last
      return sign * (one - other);
    };
  }

  function sortBy(table, head) {
    const place = head.cellIndex;
    const first = head.dataset.first || "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(compare(head.dataset.sort, place, sign)));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.querySelectorAll("th[data-sort]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(table, head));
    }
  }

  const form = document.querySelector("form.filters");
  const board = document.querySelector("table.board");
  if (!form || !board) return;
  const rows = [...board.tBodies[0].rows];
  const filter = () => {
    const [method, type, protocol] = ["method", "type", "protocol"].map((name) => form.elements[name].value);
    let shown = 0;
    for (const row of rows) {
      const fits = row.dataset.method.includes(method.trim().toLowerCase()) &&
        (!type || row.dataset.type === type) && (!protocol || row.dataset.protocol === protocol);
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
  };
  for (const kind of ["input", "change"]) form.addEventListener(kind, filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  filter();
})();
