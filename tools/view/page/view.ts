// Every view of a run gets these properties, and uses these functions to name things.

import { Run } from "./bundle";
import { QueueDetail } from "./detail";
import { State } from "./state";

export interface ViewProps {
  run: Run;
  detail: QueueDetail[];
  state: State;
  go: (change: Partial<State>) => void; // shows something else; fields that are undefined go away
}

export function nameOf(run: Run, column: "actor_name" | "actor_function" | "actor_phase" | "register_name" |
                       "register_family", index: number): string {
  return run.object.strings[run.columns[column][index]];
}

export function rankOfActor(run: Run, actor: number): number {
  return run.object.ranks[run.columns.actor_rank[actor]].rank;
}

// Returns the rank of `actor` to whom is at the other end of a register. In a simulation by symmetry both ends may be on the
// rank that stands for a class; the other end is then another rank of the class.
export function rankAcross(run: Run, register: number, actor: number, own: number): number {
  const rank = rankOfActor(run, actor);
  const c = run.columns;
  return rank === own && c.register_crosses_ranks[register] && c.register_other_rank[register] >= 0 ?
    c.register_other_rank[register] : rank;
}

// Returns the number of ranks for which a rank stands, itself included.
export function ranksOf(run: Run, place: number): number {
  const { stands_for } = run.object.ranks[place];
  return stands_for === undefined ? 1 : stands_for.ranks;
}

// Returns the queue on which an act ran.
export function queueOfAct(run: Run, act: number): number {
  return run.columns.actor_queue[run.columns.act_actor[act]];
}

// Returns "backward layers.3, step 4, micro-batch 1".
export function actText(run: Run, act: number): string {
  const c = run.columns;
  return `${nameOf(run, "actor_function", c.act_actor[act])}, step ${c.act_step[act]}, ` +
         `micro-batch ${c.act_micro_batch[act]}`;
}
