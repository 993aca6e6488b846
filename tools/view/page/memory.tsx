// The memory of each rank over a step: what is in use when, and what is held at the fullest moment and why.

import { h } from "preact";
import { HeldTensor, RankMemory } from "./bundle";
import { Bar, Table, Term } from "./ui";
import { bytes, count, percent, time } from "./units";
import { ViewProps } from "./view";

const WIDTH = 900;
const HEIGHT = 150;
const ROWS = 40;

// Returns why a tensor is held: who still has to read it.
function why(tensor: HeldTensor, at: number): string {
  if (tensor.last_reader) {
    return `${tensor.last_reader} on rank ${tensor.reader_rank} reads it last, ${time(tensor.read_until_ns! - at)} later`;
  }
  return tensor.lags ? "it is kept from step to step" : "its last reader is not in the trace";
}

function Chart({ memory, step_ns }: { memory: RankMemory; step_ns: number }): JSX.Element {
  const top = Math.max(memory.arena_bytes, memory.peak_bytes, 1);
  const y = (n: number) => HEIGHT - (n / top) * (HEIGHT - 8);
  const parts = memory.most_bytes_of_parts;
  const x = (part: number) => ((part / parts.length) * WIDTH).toFixed(1);
  let line = `M0,${HEIGHT}`;
  parts.forEach((n, i) => { line += `L${x(i)},${y(n).toFixed(1)}L${x(i + 1)},${y(n).toFixed(1)}`; });
  line += `L${WIDTH},${HEIGHT}Z`;
  const peak = (memory.peak_at_ns / Math.max(1, step_ns)) * WIDTH;
  return (
    <figure>
      <figcaption>
        Bytes in use over the {time(step_ns)} of the step; at most {bytes(memory.peak_bytes)},
        after {time(memory.peak_at_ns)}{" "}
        {memory.peak_act && `during ${memory.peak_act}`}. The lower part is always in use
        ({bytes(memory.always_bytes)}); the dashed line
        is the <Term word="arena" /> ({bytes(memory.arena_bytes)}).
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img"
           aria-label={`bytes in use on rank ${memory.rank}, at most ${bytes(memory.peak_bytes)} of ${bytes(memory.arena_bytes)}`}>
        <path d={line} class="in-use" />
        <rect x="0" y={y(memory.always_bytes)} width={WIDTH} height={HEIGHT - y(memory.always_bytes)} class="always" />
        <line x1={0} x2={WIDTH} y1={y(memory.arena_bytes)} y2={y(memory.arena_bytes)} class="granted" />
        <line x1={peak} x2={peak} y1={0} y2={HEIGHT} class="peak" />
      </svg>
    </figure>
  );
}

export function Memory({ run, state, go }: ViewProps): JSX.Element {
  const report = run.object.report.why_slow;
  if (report === undefined || report.memory.ranks.length === 0) {
    return <section><h2>Memory</h2><p>{run.object.report.why_slow_error ||
      "The trace does not say where tensors lie: an older build wrote it."}</p></section>;
  }
  const { step, step_ns, ranks } = report.memory;
  const fullest = ranks.reduce((most, r) => r.peak_bytes > most.peak_bytes ? r : most, ranks[0]);
  const shown = ranks.find((r) => r.rank === state.rank) || fullest;
  const begin = run.object.steps.find((s) => s.step === step);
  const place = run.object.ranks.find((r) => r.rank === shown.rank);
  const states = Object.keys(shown.state_bytes).map((name) => `${name} ${bytes(shown.state_bytes[name])}`);
  return (
    <section>
      <h2>Memory of rank {shown.rank} in step {step}</h2>
      <div class="controls">
        <label>Rank <select value={String(shown.rank)}
          onChange={(e: Event) => go({ rank: Number((e.target as HTMLSelectElement).value) })}>
          {ranks.map((r) => <option
            value={String(r.rank)}>{`${r.rank}: ${bytes(r.peak_bytes)}${r === fullest ? ", fullest" : ""}`}</option>)}
        </select></label>
        {begin && <button onClick={() =>
          go({ view: "timeline", from: begin.begin_ns + shown.peak_at_ns - 0.03 * step_ns,
          to: begin.begin_ns + shown.peak_at_ns + 0.03 * step_ns })}>Show the peak on the timeline</button>}
      </div>
      {place !== undefined && place.stands_for !== undefined && (
        <p>Rank {shown.rank} stands for {place.stands_for.text}; each of these {count(place.stands_for.ranks)} ranks
          needs as much.</p>)}
      <p>
        Always in use: {states.length > 0 && `${states.join(", ")}, `}<Term
          word="scratch" /> {bytes(shown.scratch_bytes)}. The rest are{" "}
        <Term word="slot">slots</Term> of <Term word="register">registers</Term>, from the first act that writes a slot
        until its last reader has given it up. Sizes and places are of the plan, times of the record.
      </p>
      <Chart memory={shown} step_ns={step_ns} />
      <Table name={`What rank ${shown.rank} holds at its peak, equal tensors of all layers as one`} rows={shown.held}
        most={ROWS} columns={[
        { title: "bytes", number: true, cell: (t) => bytes(t.bytes) },
        { title: "of the peak", number: true, cell: (t) => percent(t.bytes / Math.max(1, shown.peak_bytes)) },
        { title: "as a bar", cell: (t) => <Bar share={t.bytes / Math.max(1, shown.peak_bytes)} colour="#0072b2"
          label={percent(t.bytes / Math.max(1, shown.peak_bytes))} /> },
        { title: "tensors", cell: (t) =>
          <button class="link" onClick={() => go({ view: "timeline", find: t.name })}>{t.name}</button> },
        { title: "slots", number: true, cell: (t) => t.slots },
        { title: "written by", cell: (t) => t.writer
          ? `${t.writer}, ${time(shown.peak_at_ns - t.written_at_ns!)} before` : "before the first step of the trace" },
        { title: "held because", cell: (t) => why(t, shown.peak_at_ns) },
      ]} />
      <Table name="All ranks" rows={ranks} columns={[
        { title: "rank", number: true, cell: (r) =>
          <button class="link" onClick={() => go({ rank: r.rank })}>{String(r.rank)}</button> },
        { title: "peak", number: true, cell: (r) => bytes(r.peak_bytes) },
        { title: "of the arena", number: true, cell: (r) => percent(r.peak_bytes / Math.max(1, r.arena_bytes)) },
        { title: "arena", number: true, cell: (r) => bytes(r.arena_bytes) },
        { title: "always in use", number: true, cell: (r) => bytes(r.always_bytes) },
        { title: "peak after", number: true, cell: (r) => time(r.peak_at_ns) },
        { title: "during", cell: (r) => r.peak_act },
      ]} />
    </section>
  );
}
