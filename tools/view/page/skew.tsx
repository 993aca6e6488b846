// The same work on different ranks: how long the acts of one function take on each.

import { h } from "preact";
import { Run } from "./bundle";
import { Table, Term } from "./ui";
import { time } from "./units";
import { nameOf, ranksOf, ViewProps } from "./view";

const ROWS = 60;

interface Work {
  name: string;
  ranks: number; // those included for which others stand
  least: number; // mean time of an act on the fastest rank
  most: number;
  slowest: number; // rank
  total: number; // of all acts
}

// Sums the acts of the steady steps by function and rank. The first step fills caches, so it is left out if there are
// more.
function workOf(run: Run): Work[] {
  const c = run.columns;
  const steps = run.object.steps;
  const first = steps.length === 0 ? -Infinity : steps[Math.min(1, steps.length - 1)].step;
  const last = steps.length === 0 ? Infinity : steps[steps.length - 1].step;
  const sums = new Map<string, Map<number, { ns: number; acts: number }>>();
  for (let act = 0; act < c.act_begin.length; ++act) {
    if (c.act_step[act] < first || c.act_step[act] > last) continue;
    const actor = c.act_actor[act];
    const name = nameOf(run, "actor_function", actor);
    const rank = run.object.ranks[c.actor_rank[actor]].rank;
    let ranks = sums.get(name);
    if (ranks === undefined) sums.set(name, (ranks = new Map()));
    let sum = ranks.get(rank);
    if (sum === undefined) ranks.set(rank, (sum = { ns: 0, acts: 0 }));
    sum.ns += c.act_ns[act];
    sum.acts += 1;
  }
  const works: Work[] = [];
  const standsFor = new Map(run.object.ranks.map((of, place) => [of.rank, ranksOf(run, place)]));
  sums.forEach((ranks, name) => {
    const work: Work = { name, ranks: 0, least: Infinity, most: 0, slowest: 0, total: 0 };
    ranks.forEach((sum, rank) => {
      work.ranks += standsFor.get(rank)!;
      const mean = sum.ns / sum.acts;
      work.total += sum.ns;
      work.least = Math.min(work.least, mean);
      if (mean > work.most) {
        work.most = mean;
        work.slowest = rank;
      }
    });
    if (work.ranks > 1) works.push(work);
  });
  return works.sort((a, b) => b.total - a.total);
}

export function Skew({ run, go }: ViewProps): JSX.Element {
  const why = run.object.report.why_slow;
  const works = workOf(run);
  return (
    <section>
      <h2>The same work on different ranks</h2>
      {why !== undefined && why.slow_ranks.length === 0 && (
        <p>No rank is much slower than others at the same work.</p>
      )}
      {run.object.report.by_symmetry !== undefined && (
        <p>The ranks of a <Term word="rank class">class</Term> take the same time,
          because one of them was simulated for all.</p>
      )}
      {why !== undefined && why.slow_ranks.map((slow) => (
        <p class="advice">
          Rank {slow.rank} takes {slow.factor.toFixed(2)} times as long as ranks {slow.peers.join(", ")} for the
          same acts,{" "}
          {time(slow.more_ns_per_step)} more in a step.
        </p>
      ))}
      <Table name="Mean time of an act, on the fastest and on the slowest rank; most work first"
        rows={works} most={ROWS}
             columns={[
        { title: "function", cell: (w) => (
          <button class="link" onClick={() => go({ view: "timeline", find: w.name })}>{w.name}</button>) },
        { title: "ranks", number: true, cell: (w) => w.ranks },
        { title: "fastest", number: true, cell: (w) => time(w.least) },
        { title: "slowest", number: true, cell: (w) => time(w.most) },
        { title: "slowest rank", number: true, cell: (w) => w.slowest },
        { title: "times as long", number: true, cell: (w) => (w.most / Math.max(1, w.least)).toFixed(2) },
      ]} />
    </section>
  );
}
