// Numbers with units, as people read them.

const SPACE = "\u202f"; // narrow, and no line breaks there

// Returns three digits or more, and never an exponent as toPrecision does.
function digits(n: number): string {
  return Math.abs(n) >= 99.95 ? n.toFixed(0) : n.toPrecision(3);
}

export function time(ns: number): string {
  const size = Math.abs(ns);
  if (size < 1e3) return `${ns.toFixed(0)}${SPACE}ns`;
  if (size < 1e6) return `${digits(ns * 1e-3)}${SPACE}µs`;
  if (size < 1e9) return `${(ns * 1e-6).toPrecision(size < 1e8 ? 3 : 4)}${SPACE}ms`;
  return `${(ns * 1e-9).toFixed(2)}${SPACE}s`;
}

export function percent(share: number): string {
  const p = share * 100;
  return `${p.toFixed(Math.abs(p) < 10 ? 1 : 0)}${SPACE}%`;
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit + 1 < units.length) {
    count /= 1024;
    ++unit;
  }
  return `${unit === 0 ? count.toFixed(0) : digits(count)}${SPACE}${units[unit]}`;
}

export function rate(bytesPerSecond: number): string {
  const units = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
  let unit = 0;
  while (bytesPerSecond >= 1000 && unit + 1 < units.length) {
    bytesPerSecond /= 1000;
    ++unit;
  }
  return `${digits(bytesPerSecond)}${SPACE}${units[unit]}`;
}

export function count(n: number): string {
  return n.toLocaleString("en-US");
}

// Returns a time that a person waits, such as "1 min 12 s".
export function duration(ms: number): string {
  const s = Math.max(0, ms / 1000);
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

// Returns four digits, with an exponent for very large and very small numbers.
export function shortNumber(n: number): string {
  return n !== 0 && (Math.abs(n) >= 1e5 || Math.abs(n) < 1e-3) ? n.toExponential(2) : String(Number(n.toPrecision(4)));
}

// Returns three digits and a letter, such as "52.3k".
export function shortCount(n: number, space = ""): string {
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  while (n >= 1000 && unit + 1 < units.length) {
    n /= 1000;
    ++unit;
  }
  return `${n.toPrecision(3)}${space}${units[unit]}`;
}
