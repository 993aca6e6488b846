// The critical path of one step: where it runs, what it is made of, and what changes would gain.

import { h } from "preact";
import { Run, StepPath, WhatIf } from "./bundle";
import { PARTS } from "./colours";
import { State } from "./state";
import { Bar, Table, Term } from "./ui";
import { bytes, count, percent, time } from "./units";
import { nameOf, ViewProps } from "./view";

const ROW = 30; // pixels
const DRAWN_MAX = 2000; // segments; the shortest of more are not drawn
const PIECES = 20;
const GROUPS = 40;
// The causes of segments, numbered as in tools/trace/step_parts.h.
const CAUSES: { [cause: number]: string } = {
  0: "compute", 1: "packing and combining", 2: "reading data", 3: "token under way", 7: "slot on its way back",
  8: "between acts",
};
const UNDER_WAY = 3;
const SLOT = 7;
const BETWEEN = 8;

interface Shown {
  path: StepPath;
  place: number; // among the paths of the run
  first: number; // segment
  end: number;
}

// Returns the path of the step that the address names; else that of a typical step.
function shownPath(run: Run, state: State): Shown | undefined {
  const why = run.object.report.why_slow;
  if (why === undefined || why.step_paths.length === 0) return undefined;
  let place = why.step_paths.findIndex((p) => p.step === state.step);
  if (place < 0) place = why.step_paths.findIndex((p) => p.step === why.typical_step);
  if (place < 0) place = why.step_paths.length - 1;
  const c = run.columns;
  return { path: why.step_paths[place], place, first: c.path_first_segment[place],
    end: c.path_first_segment[place + 1] };
}

function segmentName(run: Run, segment: number): string {
  const c = run.columns;
  if (c.segment_register[segment] >= 0) return nameOf(run, "register_name", c.segment_register[segment]);
  const act = c.segment_act[segment];
  const name = act < 0 ? "" : nameOf(run, "actor_function", c.act_actor[act]);
  return c.segment_cause[segment] === BETWEEN && name ? `before ${name}` : name;
}

function rankText(run: Run, segment: number): string {
  const c = run.columns;
  const rank = c.segment_rank[segment];
  if (rank < 0) return "";
  const own = run.object.ranks[rank].rank;
  const sender = c.segment_sender[segment];
  if (sender < 0) return `${own}`;
  // A rank that stands for its class also stands for the rank at the other end.
  return `${sender === rank ? c.register_other_rank[c.segment_register[segment]] : run.object.ranks[sender].rank} to ${own}`;
}

// Returns the place on the timeline where a segment is, with a little on both sides.
function placeOf(run: Run, segment: number): Partial<State> {
  const c = run.columns;
  const ns = Math.max(1, c.segment_end[segment] - c.segment_begin[segment]);
  const act = c.segment_act[segment];
  return { view: "timeline", act: act < 0 ? undefined : act, from: c.segment_begin[segment] - ns,
           to: c.segment_end[segment] + ns };
}

// Draws a row for each rank on the path. Acts are boxes; a token or a slot between ranks is a line from row to row.
function Walk({ run, shown, go }: { run: Run; shown: Shown; go: ViewProps["go"] }): JSX.Element {
  const c = run.columns;
  const from = c.segment_begin[shown.first];
  const to = c.segment_end[shown.end - 1];
  const x = (ns: number) => `${(((ns - from) / Math.max(1, to - from)) * 100).toFixed(3)}%`;
  let drawn: number[] = [];
  const ranks: number[] = [];
  for (let s = shown.first; s < shown.end; ++s) {
    drawn.push(s);
    for (const rank of [c.segment_rank[s], c.segment_sender[s]]) if (rank >= 0 && !ranks.includes(rank))
      ranks.push(rank);
  }
  ranks.sort((a, b) => a - b);
  const length = (s: number) => c.segment_end[s] - c.segment_begin[s];
  if (drawn.length > DRAWN_MAX) drawn = drawn.sort((a, b) => length(b) - length(a)).slice(0, DRAWN_MAX);
  const row = (rank: number) => Math.max(0, ranks.indexOf(rank)) * ROW;
  const title = (s: number) => `${segmentName(run, s)}, ${CAUSES[c.segment_cause[s]]}, rank ${rankText(run, s)}, ` +
                               time(length(s));
  return (
    <div class="chart">
      <ol>{ranks.map((rank) => <li style={{ height: `${ROW}px` }}>{run.object.ranks[rank].name}</li>)}</ol>
      <svg role="img" class="walk" style={{ height: `${ranks.length * ROW}px` }}
           aria-label={`the critical path of step ${shown.path.step} over ${ranks.length} ranks, in ` +
                       `${shown.end - shown.first} pieces; the tables below have them`}>
        {ranks.map((_, i) => <line x1="0" x2="100%" y1={i * ROW} y2={i * ROW} class="border" />)}
        {drawn.map((s) => {
          const cause = c.segment_cause[s];
          const width = `${Math.max(0.06, (length(s) / Math.max(1, to - from)) * 100).toFixed(3)}%`;
          const middle = row(c.segment_rank[s]) + ROW / 2;
          return (
            <g class="box leads" onClick={() => go(placeOf(run, s))}>
              <title>{title(s)}</title>
              {cause === UNDER_WAY || cause === SLOT ? (
                <line x1={x(c.segment_begin[s])} y1={row(c.segment_sender[s]) + ROW / 2}
                  x2={x(c.segment_end[s])} y2={middle}
                      class={cause === SLOT ? "way slot" : "way"} style={{ stroke: PARTS[cause] }} />
              ) : (
                <rect x={x(c.segment_begin[s])} width={width} y={row(c.segment_rank[s]) + (cause === BETWEEN ? 12 : 5)}
                      height={cause === BETWEEN ? 6 : ROW - 10} style={{ fill: PARTS[cause] }} />
              )}
            </g>
          );
        })}
      </svg>
    </div>
  );
}

export function Path({ run, state, go }: ViewProps): JSX.Element {
  const why = run.object.report.why_slow;
  const shown = shownPath(run, state);
  if (why === undefined || shown === undefined || shown.end <= shown.first) {
    return <section><h2>Critical path</h2><p>{run.object.report.why_slow_error ||
      "The trace holds no whole step."}</p></section>;
  }
  const c = run.columns;
  const { path } = shown;
  const begin = c.segment_begin[shown.first];
  const groups = path.groups.map((group, i) =>
    ({ group, longest: c.group_longest_segment[c.path_first_group[shown.place] + i] }));
  const pieces: number[] = [];
  for (let s = shown.first; s < shown.end; ++s) pieces.push(s);
  pieces.sort((a, b) => c.segment_end[b] - c.segment_begin[b] - (c.segment_end[a] - c.segment_begin[a]));
  const link = (segment: number, text: string) => (
    <button class="link" onClick={() => go(placeOf(run, segment))}>{text}</button>);
  return (
    <section>
      <h2><Term word="critical path">Critical path</Term> of step {path.step}</h2>
      <div class="controls">
        <label>Step <select value={String(path.step)}
          onChange={(e: Event) => go({ step: Number((e.target as HTMLSelectElement).value) })}>
          {why.step_paths.map((p) => (
            <option value={String(p.step)}>{`${p.step}: ${time(p.ns)}${p.step === why.typical_step ? ", typical" : ""}`}</option>
          ))}
        </select></label>
        <button onClick={() => go({ view: "timeline", act: undefined, from: begin, to: c.segment_end[shown.end - 1] })}>
          Show the step on the timeline</button>
      </div>
      <p>
        The path of this step takes {time(path.ns)} in {count(shown.end - shown.first)} pieces.{" "}
        {shown.end - shown.first > DRAWN_MAX && `The picture has the longest ${count(DRAWN_MAX)} of them. `} Boxes are{" "}
        <Term word="act">acts</Term>; lines are tokens, or dashed lines slots, <Term word="between ranks" />; thin bars
        are time <Term word="between acts" />.
      </p>
      <Walk run={run} shown={shown} go={go} />
      <ul class="legend" aria-label="Colours">
        {Object.keys(CAUSES).map(Number).map((cause) => (
          <li><span class={`key part${cause}`} style={{ background: PARTS[cause] }} />{CAUSES[cause]}</li>))}
      </ul>
      <Table name={`What the path of step ${path.step} is made of; equal pieces of all layers are one row`}
        rows={groups} most={GROUPS}
             columns={[
        { title: "share", number: true, cell: (r) => percent(r.group.share) },
        { title: "time", number: true, cell: (r) => time(r.group.ns) },
        { title: "as a bar", cell: (r) => <Bar share={r.group.share} colour="#0072b2"
          label={percent(r.group.share)} /> },
        { title: "cause", cell: (r) => r.group.cause },
        { title: "of", cell: (r) => link(r.longest, r.group.name || "the longest piece") },
        { title: "ranks", cell: (r) => r.group.ranks.join(", ") },
        { title: "pieces", number: true, cell: (r) => count(r.group.times) },
      ]} />
      <WhatIfs run={run} />
      <Table name="The longest pieces of the path" rows={pieces} most={PIECES} columns={[
        { title: "time", number: true, cell: (s) => time(c.segment_end[s] - c.segment_begin[s]) },
        { title: "after the step's begin", number: true, cell: (s) => time(c.segment_begin[s] - begin) },
        { title: "cause", cell: (s) => CAUSES[c.segment_cause[s]] },
        { title: "of", cell: (s) => link(s, segmentName(run, s) || "unknown") },
        { title: "rank", number: true, cell: (s) => rankText(run, s) },
      ]} />
    </section>
  );
}

function WhatIfs({ run }: { run: Run }): JSX.Element {
  const why = run.object.report.why_slow!;
  const before = why.replayed_step_ns;
  const off = Math.abs(before / Math.max(1, why.recorded_step_ns) - 1);
  const slots = (row: WhatIf) => row.change.includes("*=+1000"); // as many as wanted: a bound, and no number to buy
  return (
    <div>
      <p>
        Only what lies on the path can make a step shorter, and another path may be nearly as long. So each change below
        is a <Term word="replay" /> of this run. {before === 0
          ? "The replay came to a standstill, so nothing can be predicted." :
          `Without a change a step takes ${time(before)} there, ${time(why.recorded_step_ns)} in the record: it is off by ` +
          `${percent(off)}.`}
      </p>
      <Table name="What a change would gain, mean of all typical steps" rows={why.what_if} columns={[
        { title: "saves", number: true, cell: (row) => row.finished ? percent(row.gain || 0)
          : "comes to a standstill" },
        { title: "a step then takes", number: true, cell: (row) => row.finished ? time(row.step_ns || 0) : "" },
        { title: "as a bar", cell: (row) => row.finished ? <Bar share={(row.step_ns || 0) / Math.max(1, before)}
          colour="#009e73"
            label={`${percent((row.step_ns || 0) / Math.max(1, before))} of the step`} /> : "" },
        { title: "more memory", number: true, cell: (row) => row.more_bytes && !slots(row)
          ? bytes(row.more_bytes) : "" },
        { title: "change", cell: (row) => row.about },
        { title: "for weir trace report --what-if", cell: (row) => <code>{row.change}</code> },
      ]} />
    </div>
  );
}
