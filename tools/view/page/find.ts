// The search of the timeline: which actors a text means, how many acts they have, and which is the next one.

import { Run } from "./bundle";
import { placeAfter, QueueDetail } from "./detail";
import { nameOf } from "./view";

export class Found {
  readonly acts: number = 0;
  readonly numActors: number = 0;
  private last: { act: number; place: number } = { act: -1, place: 0 };

  constructor(run: Run, readonly actors: Uint8Array) { // by actor: 1 if it is looked for
    for (const is of actors) this.numActors += is;
    const of = run.columns.act_actor;
    for (let act = 0; act < of.length; ++act) this.acts += actors[of[act]];
  }

  // Returns the place of an act among those that were found, from 1 on, in the order of their begin; 0: it is none.
  placeOf(run: Run, detail: QueueDetail[], act: number): number {
    const c = run.columns;
    if (!(act >= 0 && act < c.act_begin.length) || this.actors[c.act_actor[act]] === 0) return 0;
    if (this.last.act === act) return this.last.place;
    let place = 1;
    for (const row of detail) {
      const end = row.first + placeAfter(c, row, c.act_begin[act]);
      for (let other = row.first; other < end; ++other) {
        if (this.actors[c.act_actor[other]] === 1 && isBefore(run, other, act)) ++place;
      }
    }
    this.last = { act, place };
    return place;
  }
}

// Returns whether an act comes before another in the order of begins; of two with one begin, the first of the run.
function isBefore(run: Run, act: number, other: number): boolean {
  const begin = run.columns.act_begin;
  return begin[act] < begin[other] || (begin[act] === begin[other] && act < other);
}

// Finds actors by name, function or phase; `*` stands for any text. A register of this name stands for its producer and its
// readers. A part of a register's name counts only if no actor is found: most of these names begin with the function that
// writes the register, and a search for this function would find the readers of its results, too.
export function findActors(run: Run, text: string): Found {
  const c = run.columns;
  const parts = text.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pattern = new RegExp(parts.join(".*"), "i");
  const found = new Uint8Array(c.actor_name.length);
  for (let actor = 0; actor < found.length; ++actor) {
    if (pattern.test(nameOf(run, "actor_name", actor)) || pattern.test(nameOf(run, "actor_function", actor)) ||
      nameOf(run, "actor_phase", actor) === text) {
      found[actor] = 1;
    }
  }
  const registers = found.includes(1) ? new RegExp(`^${parts.join("[^:]*")}$`, "i") : pattern;
  for (let r = 0; r < c.register_name.length; ++r) {
    if (!registers.test(nameOf(run, "register_name", r))) continue;
    if (c.register_producer[r] >= 0) found[c.register_producer[r]] = 1;
    for (let i = c.register_first_consumer[r]; i < c.register_first_consumer[r + 1]; ++i)
      found[c.consumer_actor[i]] = 1;
  }
  return new Found(run, found);
}

// Returns the next act (`by` 1) or the one before (-1) that was found, seen from `from`, or from the moment `ns` on if that
// is -1. The first act follows the last one. At least one act must have been found.
export function findAct(run: Run, detail: QueueDetail[], found: Found, from: number, ns: number, by: 1 | -1): number {
  const beyond = nearest(run, detail, found, from, from < 0 ? ns : run.columns.act_begin[from], by);
  return beyond >= 0 ? beyond : nearest(run, detail, found, -1, by === 1 ? -Infinity : Infinity, by);
}

// Returns the act next to `from`, or next to the moment `ns` if that is -1, in one direction; -1: none.
function nearest(run: Run, detail: QueueDetail[], found: Found, from: number, ns: number, by: 1 | -1): number {
  const c = run.columns;
  let best = -1;
  for (const row of detail) {
    const after = row.first + placeAfter(c, row, ns);
    // Acts that begin at `ns` lie on both sides of `from`.
    let act = by === 1 ? after : after - 1;
    if (by === 1) while (act > row.first && c.act_begin[act - 1] === ns) --act;
    for (; act >= row.first && act < row.end; act += by) {
      if (best >= 0 && (by === 1 ? isBefore(run, best, act) : isBefore(run, act, best))) break;
      if (found.actors[c.act_actor[act]] === 0) continue;
      if (from >= 0 && (by === 1 ? !isBefore(run, from, act) : !isBefore(run, act, from))) continue;
      best = act;
      break;
    }
  }
  return best;
}
