// Levels of detail of a timeline: each level has one bucket for a few of the level below, so that a picture never draws
// many more boxes than it has columns of pixels.

import { Columns, firstAbove } from "./bundle";

const FACTOR = 4;

// A level of one queue. Bucket i covers [begin[i], end[i]] and the acts from first + i * width on.
export interface Level {
  width: number; // acts of a bucket
  begin: Float64Array;
  end: Float64Array;
  busy: Float32Array; // ns of acts in the bucket
  actor: Uint32Array; // the actor of the longest act in the bucket
}

export interface QueueDetail {
  first: number; // the first act of the queue
  end: number;
  levels: Level[]; // the first has FACTOR acts a bucket; none for a queue of few acts
}

export function buildDetail(columns: Columns): QueueDetail[] {
  const queues: QueueDetail[] = [];
  const firsts = columns.queue_first_act;
  for (let q = 0; q + 1 < firsts.length; ++q) queues.push(ofQueue(columns, firsts[q], firsts[q + 1]));
  return queues;
}

function ofQueue(columns: Columns, first: number, end: number): QueueDetail {
  const levels: Level[] = [];
  let below: Level | undefined;
  for (let width = FACTOR; end - first > width * FACTOR; width *= FACTOR) {
    const count = Math.ceil((end - first) / width);
    const level: Level = {
      width,
      begin: new Float64Array(count),
      end: new Float64Array(count),
      busy: new Float32Array(count),
      actor: new Uint32Array(count),
    };
    const longest = new Float32Array(count);
    for (let i = 0; i < count; ++i) {
      let busy = 0;
      const from = i * FACTOR;
      const to = below === undefined ? Math.min(end - first, from + FACTOR) : Math.min(below.begin.length, from + FACTOR);
      for (let k = from; k < to; ++k) {
        const act = first + k;
        const ns = below === undefined ? columns.act_ns[act] : below.busy[k];
        const actor = below === undefined ? columns.act_actor[act] : below.actor[k];
        busy += ns;
        if (k === from || ns > longest[i]) {
          longest[i] = ns;
          level.actor[i] = actor;
        }
      }
      const last = to - 1;
      level.begin[i] = below === undefined ? columns.act_begin[first + from] : below.begin[from];
      level.end[i] =
        below === undefined ? columns.act_begin[first + last] + columns.act_ns[first + last] : below.end[last];
      level.busy[i] = busy;
    }
    levels.push(level);
    below = level;
  }
  return { first, end, levels };
}

// Returns the finest level whose buckets take `ns` or more, as a mean; undefined for the acts themselves.
export function levelFor(columns: Columns, queue: QueueDetail, ns: number): Level | undefined {
  const count = queue.end - queue.first;
  if (count === 0) return undefined;
  const last = queue.end - 1;
  const all = columns.act_begin[last] + columns.act_ns[last] - columns.act_begin[queue.first];
  if (all / count >= ns) return undefined;
  for (const level of queue.levels) if (all / level.begin.length >= ns) return level;
  return queue.levels[queue.levels.length - 1];
}

// Returns the act of a queue that runs at a moment, or the act that the queue waits for then; -1 after the last act.
export function actAt(columns: Columns, queue: QueueDetail, ns: number): number {
  const next = firstAbove(columns.act_begin, ns, queue.first, queue.end);
  const act = next - 1;
  if (act >= queue.first && columns.act_begin[act] + columns.act_ns[act] >= ns) return act;
  return next < queue.end ? next : -1;
}
