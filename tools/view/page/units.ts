// Numbers with units, as people read them.

const SPACE = "\u202f"; // narrow, and no line breaks there

export function time(ns: number): string {
  const size = Math.abs(ns);
  if (size < 1e3) return `${ns.toFixed(0)}${SPACE}ns`;
  if (size < 1e6) return `${(ns * 1e-3).toPrecision(3)}${SPACE}µs`;
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
  return `${unit === 0 ? count.toFixed(0) : count.toPrecision(3)}${SPACE}${units[unit]}`;
}

export function rate(bytesPerSecond: number): string {
  return `${(bytesPerSecond * 1e-9).toPrecision(3)}${SPACE}GB/s`;
}

export function count(n: number): string {
  return n.toLocaleString("en-US");
}
