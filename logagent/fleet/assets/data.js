// The tables: columns are unpacked when the reader first looks at them.
const told = JSON.parse(document.getElementById("told").textContent);
const named = (cluster) => told.clusters[cluster] ?? cluster;

class Table {
  constructor(name, about) {
    Object.assign(this, about, { name, ranked: new Map() });
    this.at = new Map(this.columns.map((column, index) => [column.k, index]));
    this.shown = this.columns.filter((column) => !column.hidden);
  }

  async load() {
    this.loading ??= this.unpack();
    return this.loading;
  }

  async unpack() {
    const element = document.getElementById(`d-${this.name}`);
    const packed = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
    element.remove();
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    this.data = await new Response(stream).json();
    return this;
  }

  value(row, key) {
    const at = this.at.get(key);
    if (at === undefined) return undefined;
    const column = this.data[at];
    if (!Array.isArray(column)) return column.i[row] < 0 ? null : column.d[column.i[row]];
    const value = column[row];
    if (value === null && key === "name") {
      return `${this.value(row, "topic")}-${this.value(row, "partition")}`;
    }
    return value;
  }

  // All rows, in the report's order; not to be changed.
  all() { return (this.everything ??= [...Array(this.rows).keys()]); }

  // Rows that have each wanted value exactly (or any: `known`), lie within each bound, and have every word in some text.
  find(wanted, words) {
    let rows = this.all();
    for (const [key, text] of wanted) {
      const bound = /^(.*)\.(min|max|known)$/.exec(key);
      const name = bound ? bound[1] : key;
      if (!this.at.has(name)) continue;
      // Dates are texts, and in order as they are.
      const limit = this.columns[this.at.get(name)].u === "date" ? text : Number(text);
      rows = rows.filter((row) => {
        const value = this.value(row, name);
        // An empty text stands for no value.
        if (!bound) return text === "" ? value === null : value !== null && String(value) === text;
        if (bound[2] === "known") return value !== null;
        return value !== null && (bound[2] === "min" ? value >= limit : value <= limit);
      });
    }
    for (const word of words.toLowerCase().split(/\s+/).filter(Boolean)) rows = this.having(rows, word);
    return rows;
  }

  having(rows, word) {
    const tests = this.columns.map((column, at) => {
      const values = this.data[at];
      if (!Array.isArray(values)) {
        const known = column.k === "cluster_id" ? values.d.map((id) => `${id} ${named(id)}`) : values.d;
        const hits = known.map((text) => text.toLowerCase().includes(word));
        return hits.includes(true) ? (row) => hits[values.i[row]] === true : null;
      }
      if (column.k === "name") return (row) => String(this.value(row, "name")).toLowerCase().includes(word);
      return column.u === "id" ? (row) => String(values[row]) === word : null;
    }).filter(Boolean);
    return rows.filter((row) => tests.some((test) => test(row)));
  }

  // Rows without a value stay last in both directions; equal rows keep the report's order.
  sorted(rows, key, down) {
    if (!this.at.has(key)) return rows;
    const ranks = this.ranks(key);
    const sign = down ? -1 : 1;
    const known = rows.filter((row) => !Number.isNaN(ranks[row])).sort((a, b) => sign * (ranks[a] - ranks[b]));
    return known.concat(rows.filter((row) => Number.isNaN(ranks[row])));
  }

  // A number for each row, in the order of the column's values; NaN for no value. Kept: comparing texts is slow.
  ranks(key) {
    let ranks = this.ranked.get(key);
    if (!ranks) this.ranked.set(key, (ranks = Float64Array.from(this.all(), this.ranking(key))));
    return ranks;
  }

  ranking(key) {
    const column = this.data[this.at.get(key)];
    if (!Array.isArray(column)) {
      const places = placesOf(column.d);
      return (row) => places.get(column.d[column.i[row]]) ?? NaN;
    }
    const value = (row) => this.value(row, key);
    const texts = this.all().map(value).filter((one) => typeof one === "string");
    if (!texts.length) return (row) => value(row) ?? NaN;
    const places = placesOf(new Set(texts));
    return (row) => places.get(value(row)) ?? NaN;
  }
}

// Texts that compare as equal share a place, so that their rows keep the report's order.
const placesOf = (texts) => {
  const places = new Map();
  let last;
  let place = 0;
  for (const text of [...texts].sort(collator.compare)) {
    if (last !== undefined && collator.compare(last, text)) place += 1;
    places.set(text, place);
    last = text;
  }
  return places;
};

const collator = new Intl.Collator("en", { numeric: true });
const tables = new Map(Object.entries(told.tables).map(([name, about]) => [name, new Table(name, about)]));

const severalClusters = told.tables.usage_clusters.rows > 1;
// The topics in each log dir, computed here from the directories: the level between a log dir and a directory.
const PLACES = {
  title: "Topics of a log dir, with something to reclaim",
  lead: "From the table of directories: what the broker serves without trouble is not in it.",
  order: "largest first",
  empty: "No orphan, no leftover and nothing undecided here.",
  files: ["orphans.csv", "leftovers.csv", "undecided.csv"],
  columns: [
    { k: "topic", l: "Topic", u: "text", mono: true, to: "directories", by: ["cluster_id", "node_id", "log_dir", "topic"] },
    { k: "cluster_id", l: "Cluster", u: "text", mono: true, pick: true, hidden: !severalClusters },
    { k: "allocated", l: "Allocated", u: "bytes" },
    { k: "dirs", l: "Dirs", u: "int", to: "directories", by: ["cluster_id", "node_id", "log_dir", "topic", "window"] },
    { k: "window", l: "When", u: "badge", pick: true },
    { k: "log_dir", l: "Log dir", u: "text", mono: true },
    { k: "host", l: "Host", u: "text", mono: true },
    { k: "node_id", l: "Node", u: "id" },
  ],
};
class Places extends Table {
  async unpack() {
    const from = await tables.get("directories").load();
    const groups = new Map();
    const keys = ["topic", "window", "log_dir", "host", "node_id", "cluster_id"];
    for (const row of from.all()) {
      const values = keys.map((key) => from.value(row, key));
      const id = JSON.stringify(values);
      let group = groups.get(id);
      if (!group) groups.set(id, (group = { values, allocated: 0, dirs: 0 }));
      group.allocated += from.value(row, "allocated") ?? 0;
      group.dirs += 1;
    }
    const rows = [...groups.values()].sort((a, b) => b.allocated - a.allocated);
    const column = (key) => rows.map((row) => row.values[keys.indexOf(key)]);
    const texts = (key) => {
      const values = column(key);
      const distinct = [...new Set(values.filter((value) => value !== null))];
      const places = new Map(distinct.map((value, at) => [value, at]));
      return { d: distinct, i: values.map((value) => places.get(value) ?? -1) };
    };
    this.rows = this.total = rows.length;
    this.data = this.columns.map(({ k }) => {
      if (k === "allocated" || k === "dirs") return rows.map((row) => row[k]);
      return k === "node_id" ? column(k) : texts(k);
    });
    return this;
  }
}
tables.set("places", new Places("places", { ...PLACES, rows: 0, total: 0 }));
