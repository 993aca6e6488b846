// Where the time of a step goes while a run goes on: over steps, now, and on each rank.

import { h } from "preact";
import { LIVE_PARTS, PARTS } from "./colours";
import { LiveRank, LiveState, LiveStep } from "./live_run";
import { Table, Term } from "./ui";
import { bytes, count, percent, time } from "./units";

const WIDTH = 900;
const HEIGHT = 200;
const COLUMNS = 300; // of the stack over steps; each is the mean of its steps
const SHOWN_MIN = 0.0005; // of a step
const FIRST_WAIT = 3; // parts from here to the last but one are waits
const RANKS_MAX = 64;

// Parts beyond those that this page knows, of another version of Weir, look like the last.
function placeOf(part: number): number {
  return LIVE_PARTS[Math.min(part, LIVE_PARTS.length - 1)];
}

interface Column {
  first: number; // step
  step: number; // the last of those it stands for
  seconds: number; // of a step, by part, mean
  parts: number[]; // seconds of a step by cause
}

function columnsOf(steps: LiveStep[]): Column[] {
  const known = steps.filter((s) => s.parts !== undefined && s.step_seconds !== null);
  const size = Math.max(1, Math.ceil(known.length / COLUMNS));
  const columns: Column[] = [];
  for (let begin = 0; begin < known.length; begin += size) {
    const here = known.slice(begin, begin + size);
    const parts = here[here.length - 1].parts!.map((_, part) =>
      here.reduce((sum, s) => sum + (s.parts![part] || 0) * s.step_seconds!, 0) / here.length);
    columns.push({ first: here[0].step, step: here[here.length - 1].step,
      seconds: parts.reduce((a, b) => a + b, 0), parts });
  }
  return columns;
}

// Stripes of waits, so that the stack reads without colour.
function Patterns({ names }: { names: string[] }): JSX.Element {
  return (
    <defs>
      {names.map((_, part) => (
        <pattern id={`part-${part}`} width="7" height="7" patternUnits="userSpaceOnUse"
                 patternTransform={`rotate(${part % 2 === 0 ? 45 : -45})`}>
          <rect width="7" height="7" fill={PARTS[placeOf(part)]} />
          {part >= FIRST_WAIT && part + 1 < names.length && <rect width="2" height="7" fill="rgb(0 0 0 / 25%)" />}
        </pattern>
      ))}
    </defs>
  );
}

// The time of a step stacked by cause, over the steps of the run.
export function StackOverSteps({ steps, names }: { steps: LiveStep[]; names: string[] }): JSX.Element | null {
  const columns = columnsOf(steps);
  if (columns.length === 0) return null;
  // A few steps that are far longer than the others, such as the first, must not flatten them all.
  const lengths = columns.map((c) => c.seconds).sort((a, b) => a - b);
  const most = Math.max(Math.min(lengths[lengths.length - 1], 2 * lengths[Math.floor(lengths.length * 0.9)]), 1e-9);
  const cut = lengths[lengths.length - 1] > most;
  const width = WIDTH / columns.length;
  const y = (seconds: number) => HEIGHT - (Math.min(seconds, most) / most) * HEIGHT;
  const last = columns[columns.length - 1];
  const now = steps.filter((s) => s.parts !== undefined && s.step_seconds !== null).pop()!;
  const told = now.parts!.map((share, i) => `${names[i]} ${percent(share)}`).join(", ");
  const below: number[] = columns.map(() => 0);
  const areas = names.map((_, part) => {
    let top = "", bottom = "";
    columns.forEach((column, i) => {
      const from = below[i];
      below[i] += column.parts[part] || 0;
      top += `${i === 0 ? "M" : "L"}${(i * width).toFixed(1)},${y(below[i]).toFixed(1)}` +
        `L${((i + 1) * width).toFixed(1)},${y(below[i]).toFixed(1)}`;
      bottom = `L${((i + 1) * width).toFixed(1)},${y(from).toFixed(1)}L${(i * width).toFixed(1)},${y(from).toFixed(1)}${bottom}`;
    });
    return `${top}${bottom}Z`;
  });
  return (
    <figure class="curve">
      <figcaption>time of a step by cause, mean of all ranks <b>{time(now.step_seconds! * 1e9)}</b></figcaption>
      <div class="axes">
        <ol class="scale" aria-hidden="true"><li>{time(most * 1e9)}</li><li>0</li></ol>
        <svg class="parts" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img"
             aria-label={`time of a step by cause from step ${columns[0].first} to step ${last.step}; of the last: ${told}`}>
          <Patterns names={names} />
          {areas.map((area, part) => <path d={area} fill={`url(#part-${part})`}><title>{names[part]}</title></path>)}
        </svg>
      </div>
      <p class="note scale-x"><span>{`step ${count(columns[0].first)}`}</span>{cut &&
        <span>longer steps are cut at the top</span>}<span>{`step ${count(last.step)}`}</span></p>
    </figure>
  );
}

// The parts of the last steps: a key of the colours, and a table of the figures.
export function PartsNow({ step, names }: { step: LiveStep; names: string[] }): JSX.Element | null {
  if (step.parts === undefined || step.step_seconds === null) return null;
  const rows = names.map((name, part) => ({ name, part, share: step.parts![part] || 0 })).filter((row) =>
    row.share > SHOWN_MIN);
  return (
    <Table name="The last steps by cause, mean of all ranks" rows={rows} columns={[
      { title: "cause", cell: (row) => <span><Key part={row.part} />{row.name}</span> },
      { title: "of a step", number: true, cell: (row) => time(row.share * step.step_seconds! * 1e9) },
      { title: "share", number: true, cell: (row) => percent(row.share) },
    ]} />
  );
}

function Key({ part }: { part: number }): JSX.Element {
  return <span class={`key part${placeOf(part)}`} style={{ background: PARTS[placeOf(part)] }} />;
}

function Stack({ parts, names }: { parts: number[]; names: string[] }): JSX.Element {
  const told = parts.map((share, part) => `${names[part]} ${percent(share)}`).join(", ");
  return (
    <span class="stack small" role="img" aria-label={told}>
      {parts.map((share, part) => share > 0.002 && (
        <span class={`part part${placeOf(part)}`} style={{ width: `${share * 100}%`, background: PARTS[placeOf(part)] }}
              title={`${names[part]}: ${percent(share)}`} />
      ))}
    </span>
  );
}

// Each rank with its parts, its memory as planned, and the host of its process.
export function RankBars({ state }: { state: LiveState }): JSX.Element | null {
  if (!state.work || state.work.length === 0) return null;
  const hostOf = new Map<number, string>();
  for (const worker of state.workers || []) for (const rank of worker.ranks) hostOf.set(rank, worker.host);
  const hosts = new Set(hostOf.values());
  const share = (rank: LiveRank, waits: boolean) => rank.parts.reduce((sum, part, i) =>
    sum + ((i >= FIRST_WAIT && i + 1 < state.part_names.length) === waits ? part : 0), 0);
  return (
    <Table name="Ranks" rows={state.work} most={RANKS_MAX} columns={[
      { title: <Term word="rank" />, number: true, cell: (rank) => String(rank.rank) },
      { title: <Term word="stage" />, number: true, cell: (rank) => String(rank.stage) },
      ...(hosts.size > 1 ? [{ title: "host", cell: (rank: LiveRank) => hostOf.get(rank.rank) || "" }] : []),
      { title: <Term word="in acts" />, number: true, cell: (rank) => rank.busy === null ? "" : percent(rank.busy) },
      { title: "waits", number: true, cell: (rank) => rank.parts.length === 0 ? "" : percent(share(rank, true)) },
      { title: "the last steps by cause", cell: (rank) => <Stack parts={rank.parts} names={state.part_names} /> },
      { title: "memory as planned", number: true, cell: (rank) => {
        const planned = state.facts && state.facts.bytes_of_rank[rank.rank];
        return planned ? bytes(planned) : "";
      } },
    ]} />
  );
}
