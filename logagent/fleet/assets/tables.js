// One table: its rows, how they are sorted, and which of them are shown.
const NOTHING = "–";
const collator = new Intl.Collator("en", { numeric: true });

const exactText = (cell) => cell.title || cell.querySelector("[title]")?.title || cell.textContent;
const figure = (cell) => {
  const found = exactText(cell).replace(/−/g, "-").replace(/,/g, "").match(/-?\d+(\.\d+)?/);
  return found ? Number(found[0]) : null;
};

class View {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    this.rows = [...this.body.rows];
    this.heads = [...table.tHead.rows[0].cells];
    this.keys = this.heads.map((head) => head.dataset.k);
    this.labels = this.heads.map((head) => head.textContent);
    this.total = Number(table.dataset.total);
    this.words = "";
    this.exact = new Map();
    this.texts = null;
    this.changed = () => {};
  }

  column(key) { return this.keys.indexOf(key); }

  value(row, key) {
    const at = this.column(key);
    return at < 0 ? null : row.cells[at].textContent;
  }

  // Rows without a value stay last in both directions; equal rows keep the report's order.
  sort(at, direction) {
    let rows = this.rows;
    if (direction) {
      const number = "n" in this.heads[at].dataset;
      const keyed = rows.map((row) => {
        const cell = row.cells[at];
        const text = cell.textContent === NOTHING ? null : exactText(cell);
        return [text === null ? null : number ? figure(cell) : text, row];
      });
      const sign = direction === "ascending" ? 1 : -1;
      keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * (number ? a - b : collator.compare(a, b));
      });
      rows = keyed.map(([, row]) => row);
    }
    this.body.append(...rows);
    this.heads.forEach((head, index) => {
      if (direction && index === at) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    const label = this.labels[at];
    say(direction ? `Sorted by ${label}, ${direction}.` : "In the order of the report.");
  }

  matches(index) {
    const row = this.rows[index];
    for (const [key, wanted] of this.exact) if (this.value(row, key) !== wanted) return false;
    if (!this.words) return true;
    this.texts ??= this.rows.map((each) => [...each.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
    return this.words.split(/\s+/).every((word) => this.texts[index].includes(word));
  }

  filter() {
    let found = 0;
    this.rows.forEach((row, index) => {
      const match = this.matches(index);
      row.hidden = !match;
      found += match;
    });
    this.changed(found);
    return found;
  }

  // Filter by exactly these columns; what this table has no column for is left out.
  only(wanted) {
    this.words = "";
    this.exact = new Map([...wanted].filter(([key]) => this.column(key) >= 0));
    return this.filter();
  }
}

const views = new Map();
for (const table of document.querySelectorAll("table[data-total]")) views.set(table.id.slice(2), new View(table));
