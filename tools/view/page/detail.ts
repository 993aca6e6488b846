// Levels of detail of a timeline. A level divides the time of a row into spans of equal length, and tells of each span
// how much of it has acts, which act is the longest, and how much of it is a wait of each cause. A picture reads one or
// two spans for a column of pixels, so its cost does not depend on the number of acts.

import { WaitKind, WAIT_KINDS } from "./colours";
import { Columns, firstAbove } from "./bundle";

const ACTS_OF_SPAN = 2; // of the finest level, as a mean
const WHOLE = 255; // the share of a span that is full

const KIND_OF: { [kind in WaitKind]: number } = { late: 0, way: 1, own: 2, credit: 3 };
export const NO_WAIT = -1;

// The acts of one row, in the order of time: those of a queue, or those of one actor of a queue.
export interface QueueDetail {
  acts: Uint32Array | null; // null: those from `first` to `end`
  first: number;
  end: number;
  from: number; // ns: the begin of the first span
  span: number; // ns: the length of a span of level 0; each level above has spans of twice the length
  starts: number[]; // the place of the first span of each level in the arrays below, and at last their length
  busy: Uint8Array; // the share of acts
  actor: Uint32Array; // of the longest act
  microBatch: Uint16Array;
  waits: Uint8Array; // the shares of waits: one of each kind for each span
}

export function countOf(row: QueueDetail): number {
  return row.acts === null ? row.end - row.first : row.acts.length;
}
// Returns the act at a place of a row.
export function actOf(row: QueueDetail, place: number): number {
  return row.acts === null ? row.first + place : row.acts[place];
}
// Returns the place of the first act of a row that begins after `ns`.
export function placeAfter(columns: Columns, row: QueueDetail, ns: number): number {
  const begin = columns.act_begin;
  if (row.acts === null) return firstAbove(begin, ns, row.first, row.end) - row.first;
  let from = 0;
  let to = row.acts.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (begin[row.acts[middle]] > ns) to = middle;
    else from = middle + 1;
  }
  return from;
}

// Returns the number of the kind of the wait before an act (KIND_OF), or NO_WAIT. A wait for another rank is late until
// the token was sent, and under way from then on: waitSent() returns this moment.
export function waitKind(c: Columns, act: number): number {
  if (c.act_wait[act] === 0 || !(c.act_wait_ns[act] > 0)) return NO_WAIT;
  if (c.act_wait[act] === 2) return KIND_OF.credit;
  const waited = c.act_waited_register[act];
  return waited >= 0 && !c.register_crosses_ranks[waited] ? KIND_OF.own : KIND_OF.late;
}
export function waitSent(c: Columns, act: number): number {
  const end = c.act_begin[act];
  const begin = end - c.act_wait_ns[act];
  const cause = c.act_cause[act];
  return cause < 0 ? begin : Math.min(end, Math.max(begin, c.act_begin[cause] + c.act_ns[cause]));
}

export function buildDetail(columns: Columns): QueueDetail[] {
  const queues: QueueDetail[] = [];
  const firsts = columns.queue_first_act;
  for (let q = 0; q + 1 < firsts.length; ++q) queues.push(ofActs(columns, null, firsts[q], firsts[q + 1]));
  return queues;
}

// Returns the memory of rows, for a worker to hand over.
export function buffersOf(rows: QueueDetail[]): ArrayBuffer[] {
  const buffers: ArrayBuffer[] = [];
  for (const row of rows) {
    for (const array of [row.busy, row.actor, row.microBatch, row.waits]) buffers.push(array.buffer as ArrayBuffer);
  }
  return buffers;
}

// Returns the rows of the actors of a queue, in the order of their first acts.
export function actorRows(columns: Columns, queue: QueueDetail): { actor: number; row: QueueDetail }[] {
  const counts = new Map<number, number>();
  for (let act = queue.first; act < queue.end; ++act) {
    const actor = columns.act_actor[act];
    counts.set(actor, (counts.get(actor) || 0) + 1);
  }
  const acts = new Map<number, Uint32Array>();
  for (const [actor, count] of counts) acts.set(actor, new Uint32Array(count));
  counts.clear();
  for (let act = queue.first; act < queue.end; ++act) {
    const actor = columns.act_actor[act];
    const place = counts.get(actor) || 0;
    acts.get(actor)![place] = act;
    counts.set(actor, place + 1);
  }
  return Array.from(acts, ([actor, of]) => ({ actor, row: ofActs(columns, of, queue.first, queue.end) }));
}

function ofActs(columns: Columns, acts: Uint32Array | null, first: number, end: number): QueueDetail {
  const row: QueueDetail = { acts, first, end, from: 0, span: 1, starts: [0], busy: new Uint8Array(0),
                             actor: new Uint32Array(0), microBatch: new Uint16Array(0), waits: new Uint8Array(0) };
  const count = countOf(row);
  let spans = Math.ceil(count / ACTS_OF_SPAN);
  if (count === 0) return row;
  const last = actOf(row, count - 1);
  row.from = columns.act_begin[actOf(row, 0)] - columns.act_wait_ns[actOf(row, 0)];
  row.span = Math.max(1, (columns.act_begin[last] + columns.act_ns[last] - row.from) / spans);
  for (;; spans = Math.ceil(spans / 2)) {
    row.starts.push(row.starts[row.starts.length - 1] + spans);
    if (spans === 1) break;
  }
  const all = row.starts[row.starts.length - 1];
  row.busy = new Uint8Array(all);
  row.actor = new Uint32Array(all);
  row.microBatch = new Uint16Array(all);
  row.waits = new Uint8Array(all * WAIT_KINDS.length);
  fillFinest(columns, row, count);
  for (let level = 1; level + 1 < row.starts.length; ++level) fillAbove(row, level);
  return row;
}

// Fills level 0 from the acts.
function fillFinest(c: Columns, row: QueueDetail, count: number): void {
  const spans = row.starts[1];
  const kinds = WAIT_KINDS.length;
  const busy = new Float32Array(spans);
  const longest = new Float32Array(spans);
  const waits = new Float32Array(spans * kinds);
  const { from, span, actor, microBatch } = row;
  const addWait = (kind: number, begin: number, end: number) => {
    const low = Math.max(0, (begin - from) / span);
    const high = Math.min(spans, (end - from) / span);
    for (let i = Math.floor(low); i < high; ++i) waits[i * kinds + kind] += Math.min(high, i + 1) - Math.max(low, i);
  };
  for (let place = 0; place < count; ++place) {
    const act = row.acts === null ? row.first + place : row.acts[place];
    const begin = c.act_begin[act];
    const low = (begin - from) / span;
    const high = Math.min(spans, low + c.act_ns[act] / span);
    const lowest = Math.min(spans - 1, Math.floor(low));
    for (let i = lowest; i < high || i === lowest; ++i) {
      const share = Math.max(1e-3, Math.min(high, i + 1) - Math.max(low, i)); // the shortest act shows, too
      busy[i] += share;
      if (share <= longest[i]) continue;
      longest[i] = share;
      actor[i] = c.act_actor[act];
      microBatch[i] = Math.max(0, c.act_micro_batch[act]);
    }
    const kind = waitKind(c, act);
    if (kind === NO_WAIT) continue;
    const sent = kind === KIND_OF.late ? waitSent(c, act) : begin;
    addWait(kind, begin - c.act_wait_ns[act], sent);
    if (sent < begin) addWait(KIND_OF.way, sent, begin);
  }
  for (let i = 0; i < spans; ++i) {
    row.busy[i] = busy[i] === 0 ? 0 : Math.max(1, Math.min(WHOLE, Math.round(busy[i] * WHOLE)));
    for (let k = i * kinds; k < (i + 1) * kinds; ++k) row.waits[k] = Math.min(WHOLE, Math.round(waits[k] * WHOLE));
  }
}

// Fills a level from the one below it.
function fillAbove(row: QueueDetail, level: number): void {
  const kinds = WAIT_KINDS.length;
  const below = row.starts[level - 1];
  const belowEnd = row.starts[level];
  const { busy, actor, microBatch, waits } = row;
  for (let i = belowEnd; i < row.starts[level + 1]; ++i) {
    const a = below + 2 * (i - belowEnd);
    const b = a + 1 < belowEnd ? a + 1 : -1;
    const other = b < 0 ? 0 : busy[b];
    busy[i] = busy[a] + other === 0 ? 0 : Math.max(1, (busy[a] + other + (i & 1)) >> 1);
    const main = other > busy[a] ? b : a;
    actor[i] = actor[main];
    microBatch[i] = microBatch[main];
    for (let k = 0; k < kinds; ++k)
      waits[i * kinds + k] = (waits[a * kinds + k] + (b < 0 ? 0 : waits[b * kinds + k]) + (i & 1)) >> 1;
  }
}

// Returns the coarsest level whose spans are no longer than `ns`; -1: even those of level 0 are longer.
export function levelFor(row: QueueDetail, ns: number): number {
  if (row.starts.length < 2 || ns < row.span) return -1;
  return Math.min(row.starts.length - 2, Math.floor(Math.log2(ns / row.span)));
}

// Returns the act of a row that runs at a moment, or the act that the row waits for then; -1 after the last act.
export function actAt(columns: Columns, row: QueueDetail, ns: number): number {
  const next = placeAfter(columns, row, ns);
  if (next > 0) {
    const act = actOf(row, next - 1);
    if (columns.act_begin[act] + columns.act_ns[act] >= ns) return act;
  }
  return next < countOf(row) ? actOf(row, next) : -1;
}
