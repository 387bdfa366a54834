// Tables that are sorted by the column whose head is chosen; again turns the order around.

const AMOUNTS = { ns: 1, µs: 1e3, ms: 1e6, s: 1e9, byte: 1, bytes: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, "×": 1, "": 1 };
const AMOUNT = /^#?(-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?) ?([^\s\d,;]*)$/;

/** A number with its unit as a number; null for any other text. */
function amountOf(text) {
  const [, number, unit] = AMOUNT.exec(text.trim()) ?? [];
  return number !== undefined && Object.hasOwn(AMOUNTS, unit) ? Number(number.replaceAll(",", "")) * AMOUNTS[unit] : null;
}

/** Amounts in their order, other texts in theirs; what is empty comes last in both directions. */
function compareCells(a, b) {
  const [x, y] = [amountOf(a), amountOf(b)];
  if (x !== null && y !== null) return x - y;
  return a.localeCompare(b, "en", { numeric: true });
}

/** A head of a column that sorts. */
function sorter(name, act) {
  return el("button", { type: "button", class: "sort", on: { click: act } }, name);
}

function makeSortable(table) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const name = head.textContent;
    head.replaceChildren(sorter(name, () => {
      const down = head.ariaSort === "ascending" || (head.ariaSort === null && head.classList.contains("n"));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [row.cells[column].textContent, row]);
      rows.sort(([a], [b]) => Number(!a) - Number(!b) || (down ? compareCells(b, a) : compareCells(a, b)));
      body.replaceChildren(...rows.map(([, row]) => row));
    }));
  });
}
