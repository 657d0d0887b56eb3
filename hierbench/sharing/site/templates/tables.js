"use strict";
// Sorting of tables that are complete without it: buttons appear only where this script runs.
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
})();
