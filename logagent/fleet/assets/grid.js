// One table of any length: only the visible rows are in the document; the others are blank space above and below.
const ROW = 32;
const paper = matchMedia("print");
// Other figures have four digits on the page; the CSV has all of them.
const EXACT = /^(bytes|size|reclaim_.*)$/;
const AHEAD = 12;
const TONES = {
  now: "good", restart: "calm", approval: "bad", later: "calm", offline: "bad", "unknown-host": "bad", full: "bad",
  online: "good", decided: "good", unknown: "bad", "only copy": "bad", "longest copy": "warn", "read-only": "warn",
};
// What a word in a cell means, where it stands.
const MEANINGS = {
  now: "can be freed now", restart: "can be freed at the next start of the broker", later: "not due yet",
  approval: "freed only with an approval: the only copy left, or its host refuses it without",
  ...told.reasons,
  stray: "set aside; removed after its retention", overdue: "marked by a broker, and past its delay",
  "only copy": "no other copy of this topic id and partition is in the fleet",
  "longest copy": "no other copy is longer", "shorter copy": "another copy is longer",
  "length unknown": "how long it is could not be read",
  "no-assignments": "the cluster's assignments do not say", "no-topic-id": "the directory or the topic has no id",
  "sources-disagree": "the agent and the cluster say different things",
  "wrong-directory": "assigned to another log dir of this host", reassigning: "a reassignment is under way",
  internal: "an internal topic", uncommitted: "its removal is not committed yet",
  "stale-assignments": "newer than what the assignments know", "assignments-doubted": "too many would be orphans",
  decided: "the assignments were complete and current", unknown: "no complete, current assignments: nothing is called an orphan",
};
const WORDS = { restart: "at restart", approval: "approval", later: "not yet due" };

// Escapes for invisible characters are marked, so that they cannot be mistaken for the name's own text.
const ESCAPE = /(\\\\|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})/;
const putName = (element, text) => {
  text.split(ESCAPE).forEach((part, at) => {
    if (part) element.append(at % 2 ? make("span", "x", part) : part);
  });
};

const cellOf = (table, row, column) => {
  const cell = make("td");
  const value = table.value(row, column.k);
  if (value === null || value === undefined) {
    cell.textContent = NOTHING;
    return cell;
  }
  const text = column.k === "cluster_id" ? named(value) : shown(value, column.u);
  if (value === 0) cell.classList.add("z");
  let inside = cell;
  if (column.to && value !== 0) {
    inside = make("a");
    const wanted = new URLSearchParams();
    for (const key of column.by) {
      const known = table.value(row, key);
      if (known !== undefined) wanted.set(key, known ?? "");
    }
    for (const key of Object.keys(column.only ?? {})) wanted.set(key, column.only[key]);
    inside.href = `#${column.to}?${wanted}`;
    cell.append(inside);
  } else if (column.u === "badge") {
    inside = make("b", TONES[value] ?? "calm");
    cell.append(inside);
  }
  if (column.u === "badge") inside.textContent = WORDS[value] ?? text;
  else if (typeof value === "string") putName(inside, text);
  else inside.textContent = text;
  if (column.u === "bytes") cell.title = EXACT.test(column.k) ? `${exact(value)} B` : text;
  else if (typeof value === "string") cell.title = (column.mono ? undefined : MEANINGS[value]) ?? text;
  if (column.k === "used_share") {
    const bar = make("span", value >= 0.95 ? "fill bad" : "fill");
    bar.style.width = `${Math.min(value, 1) * 100}%`;
    cell.classList.add("share");
    cell.append(bar);
  }
  return cell;
};

const widthOf = (table, column, rows) => {
  let longest = column.l.length + 3;
  for (const row of rows.slice(0, 200)) {
    const value = table.value(row, column.k);
    const text = column.k === "cluster_id" ? named(value) : shown(value, column.u);
    // An id of 22 characters is told by its beginning; the names that operators give are shorter.
    longest = Math.max(longest, Math.min(String(text).length, column.k === "cluster_id" ? 11 : column.mono ? 40 : 34));
  }
  return `${longest + 2}ch`;
};

class Grid {
  constructor(table, rows, { sort, onSort, pick }) {
    Object.assign(this, { table, rows, pick });
    this.box = make("div", "scroll");
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", `${table.title}, table`);
    this.element = make("table");
    this.element.setAttribute("aria-rowcount", rows.length + 1);
    this.element.setAttribute("aria-label", table.title);
    const group = make("colgroup");
    const head = make("tr");
    head.setAttribute("aria-rowindex", 1);
    if (pick) {
      group.append(make("col", "pick"));
      head.append(make("td", "", ""));
    }
    table.shown.forEach((column, index) => {
      const col = make("col");
      const width = widthOf(table, column, rows);
      // The first column stays in sight on a small screen, and leaves room for the others.
      col.style.width = index ? width : `min(${width}, 44vw)`;
      group.append(col);
      head.append(this.heading(column, sort, onSort));
    });
    this.body = make("tbody");
    const top = make("thead");
    top.append(head);
    this.element.append(group, top, this.body);
    this.box.append(this.element);
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  heading(column, sort, onSort) {
    const head = make("th", isFigure(column) ? "n" : "");
    head.scope = "col";
    head.dataset.k = column.k;
    if (column.h) head.title = column.h;
    const button = make("button", "", column.l);
    button.type = "button";
    const [key, down] = sort.startsWith("-") ? [sort.slice(1), true] : [sort, false];
    if (key === column.k) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const first = isFigure(column) ? `-${column.k}` : column.k;
    const second = isFigure(column) ? column.k : `-${column.k}`;
    button.addEventListener("click", () => onSort(sort === first ? second : sort === second ? "" : first, column));
    head.append(button);
    return head;
  }

  draw(count) {
    // On paper nothing scrolls: all that is drawn there was drawn before.
    if (!count && paper.matches) return;
    const first = count ? 0 : Math.max(0, Math.floor(this.box.scrollTop / ROW) - AHEAD);
    const last = count ?? Math.min(this.rows.length, Math.ceil((this.box.scrollTop + (this.box.clientHeight || 600)) / ROW) + AHEAD);
    if (this.first === first && this.last === last) return;
    // The focus must not vanish with the row that has it.
    const held = this.body.contains(document.activeElement) ? document.activeElement.closest("tr") : null;
    const [heldRow, heldCell] = held ? [held.dataset.row, document.activeElement.closest("td, th").cellIndex] : [];
    [this.first, this.last] = [first, last];
    const made = this.rows.slice(first, last).map((row, at) => this.row(row, first + at));
    this.body.replaceChildren(this.room(first), ...made, this.room(count ? 0 : this.rows.length - last));
    if (held) {
      const again = this.body.querySelector(`tr[data-row="${heldRow}"]`)?.cells[heldCell]?.querySelector("a, input");
      (again ?? this.box).focus({ preventScroll: true });
    }
  }

  room(rows) {
    const room = make("tr", "room");
    room.setAttribute("aria-hidden", "true");
    room.hidden = rows <= 0;
    const cell = make("td");
    cell.colSpan = this.table.shown.length + (this.pick ? 1 : 0);
    cell.style.height = `${rows * ROW}px`;
    room.append(cell);
    return room;
  }

  row(row, at) {
    const element = make("tr");
    element.dataset.row = row;
    element.setAttribute("aria-rowindex", at + 2);
    if (this.pick) element.append(this.pick(row));
    this.table.shown.forEach((column, index) => {
      const cell = cellOf(this.table, row, column);
      if (isFigure(column) && index) cell.classList.add("n");
      if (column.mono) cell.classList.add("m");
      else if (column.pick || cell.textContent.length < (column.k === "error" ? 20 : 16)) cell.classList.add("w");
      if (column.k === "cluster_id" && index) cell.classList.add("c");
      if (index === 0) cell.classList.add("first");
      // Rows of one name are a group: it is told once.
      if (index === 0 && at && this.table.value(this.rows[at - 1], column.k) === this.table.value(row, column.k)) cell.classList.add("again");
      element.append(cell);
    });
    return element;
  }
}
const isFigure = (column) => !["text", "time", "date", "bool", "badge"].includes(column.u);
