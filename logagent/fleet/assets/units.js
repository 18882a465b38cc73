// Figures as people read them, the same as `page/units.py` on the first screen (a test compares the two).
const NOTHING = "–";
const MINUS = "−";
const SIZES = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB"];
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
// Made once: to make a formatter takes longer than to sort a table.
const FIXED = [0, 1, 2].map((digits) => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const fixed = (value, digits) => FIXED[digits].format(value);
const exact = (number) => fixed(number, 0).replace("-", MINUS);

const size = (number) => {
  const sign = number < 0 ? MINUS : "";
  let value = Math.abs(number);
  if (value < 1024) return `${sign}${fixed(value, 0)} B`;
  let unit = -1;
  do { value /= 1024; unit += 1; } while (value >= 1023.5 && unit < SIZES.length - 1);
  return `${sign}${fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${SIZES[unit]}`;
};
const percent = (share) => {
  const value = share * 100;
  if (value > 0 && value < 0.05) return "< 0.1 %";
  if (value >= 99.95 && value < 100) return "> 99.9 %";
  return `${value.toFixed(1)} %`;
};
const age = (seconds) => {
  const sign = seconds < 0 ? MINUS : "";
  const whole = Math.trunc(Math.abs(seconds));
  const rest = (value, unit) => (value ? ` ${value} ${unit}` : "");
  if (whole < 60) return `${sign}${whole} s`;
  if (whole < 3600) return `${sign}${Math.trunc(whole / 60)} min`;
  if (whole < 86400) return `${sign}${Math.trunc(whole / 3600)} h${rest(Math.trunc((whole % 3600) / 60), "min")}`;
  const days = Math.trunc(whole / 86400);
  return days < 10 ? `${sign}${days} d${rest(Math.trunc((whole % 86400) / 3600), "h")}` : `${sign}${fixed(days, 0)} d`;
};
const daysAhead = (value) => {
  if (value < 1) return "< 1 d";
  if (value > 3650) return "> 10 y";
  return value < 10 ? `${value.toFixed(1)} d` : `${fixed(value, 0)} d`;
};
const ratio = (value) => (value < 100 ? `${value.toFixed(2)}×` : `${fixed(value, 0)}×`);
const moment = (seconds) => {
  const at = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]} ${at.getUTCFullYear()}, ${two(at.getUTCHours())}:${two(at.getUTCMinutes())} UTC`;
};
const dayOf = (text) => {
  const [, year, month, date] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text) ?? [];
  return year === undefined ? text : `${Number(date)} ${MONTHS[month - 1]} ${year}`;
};
const FORMATS = { bytes: size, seconds: age, days: daysAhead, share: percent, ratio, int: exact, id: String, time: moment };
const shown = (value, unit) => {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value === "string") return unit === "date" ? dayOf(value) : value;
  return (FORMATS[unit] ?? String)(value);
};
