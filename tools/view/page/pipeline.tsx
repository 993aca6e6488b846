// The pipeline of one step as it ran: a row for each device, a box for each act of a micro-batch.

import { h } from "preact";
import { Run } from "./bundle";
import { microBatchColour, phaseColour } from "./colours";
import { Table, Term } from "./ui";
import { percent, time } from "./units";
import { actText, nameOf, ViewProps } from "./view";

const ROW = 30; // pixels
const TEXT_MIN = 1.2; // percent of the width
const PHASES = ["forward", "backward", "weight gradient"];

interface Box {
  act: number;
  queue: number;
  begin: number;
  end: number;
  phase: string;
  micro_batch: number;
}

// Returns the acts of a step that a pipeline hands from stage to stage.
function boxesOf(run: Run, step: number): Box[] {
  const c = run.columns;
  const boxes: Box[] = [];
  for (let queue = 0; queue + 1 < c.queue_first_act.length; ++queue) {
    for (let act = c.queue_first_act[queue]; act < c.queue_first_act[queue + 1]; ++act) {
      if (c.act_step[act] !== step) continue;
      const phase = nameOf(run, "actor_phase", c.act_actor[act]);
      if (PHASES.indexOf(phase) < 0) continue;
      boxes.push({ act, queue, phase, begin: c.act_begin[act], end: c.act_begin[act] + c.act_ns[act],
                   micro_batch: c.act_micro_batch[act] });
    }
  }
  return boxes;
}

export function Pipeline({ run, state, go }: ViewProps): JSX.Element {
  const report = run.object.report;
  const steps = run.object.steps;
  if (steps.length === 0) return <section><h2>Pipeline</h2><p>No step is whole in the trace.</p></section>;
  const isWhole = (step: number | undefined): step is number => steps.some((s) => s.step === step);
  const typical = report.why_slow === undefined ? undefined : report.why_slow.typical_step;
  const step = [state.step, typical].find(isWhole) ?? steps[steps.length - 1].step;
  const boxes = boxesOf(run, step);
  if (boxes.length === 0) return <section><h2>Pipeline</h2><p>The step has no acts of micro-batches.</p></section>;
  const from = boxes.reduce((least, b) => Math.min(least, b.begin), Infinity);
  const to = boxes.reduce((most, b) => Math.max(most, b.end), 0);
  const x = (ns: number) => ((ns - from) / (to - from)) * 100;
  const byMicroBatch = state.colour === "micro-batch";
  const rows = run.object.queues.map((queue, q) => {
    const own = boxes.filter((b) => b.queue === q);
    const busy = own.reduce((sum, b) => sum + b.end - b.begin, 0);
    return { name: queue.name, acts: own.length, busy, idle: 1 - busy / (to - from) };
  });
  return (
    <section>
      <h2>Pipeline of step {step}</h2>
      <p>
        {report.stages} <Term word="stage">stages</Term>, {report.micro_batches} micro-batches
        {report.schedule && `, ${report.schedule}`}. From the first forward act to the last backward act a device has no
        such act for {percent(report.pipeline_bubble)} of the time, mean of all steps: the <Term word="bubble" />.
        {report.predicted_bubble > 0 && ` The plan expected ${percent(report.predicted_bubble)}.`}
        {report.stages > 1 && ` Stages of equal work without any waits would have ${percent(report.bubble_formula)}.`}
      </p>
      <div class="controls">
        <label>Step <select value={String(step)}
          onChange={(e: Event) => go({ step: Number((e.target as HTMLSelectElement).value) })}>
          {steps.map((s) => <option value={String(s.step)}>{`${s.step}: ${time(s.end_ns - s.begin_ns)}${
            s.step === typical ? ", typical" : ""}`}</option>)}
        </select></label>
        <label>Colour by <select value={state.colour || "phase"}
          onChange={(e: Event) => go({ colour: (e.target as HTMLSelectElement).value === "micro-batch" ?
            "micro-batch" : undefined })}>
          <option value="phase">phase</option><option value="micro-batch">micro-batch</option></select></label>
      </div>
      <div class="chart">
        <ol>{rows.map((r) => <li style={{ height: `${ROW}px` }}>{r.name}</li>)}</ol>
        <svg role="img" style={{ height: `${rows.length * ROW}px` }}
             aria-label={`acts of ${report.micro_batches} micro-batches on ${rows.length} devices`}>
          {boxes.map((b) => (
            <g class="box" onClick={() => go({ view: "timeline", act: b.act, from: b.begin - 2 * (b.end - b.begin),
                                               to: b.end + 2 * (b.end - b.begin) })}>
              <title>{actText(run, b.act)}, {time(b.end - b.begin)}</title>
              <rect x={`${x(b.begin)}%`} y={b.queue * ROW + 3} width={`${Math.max(0.05, x(b.end) - x(b.begin))}%`}
                    height={ROW - 6}
                    style={{ fill: byMicroBatch ? microBatchColour(b.micro_batch) : phaseColour(b.phase) }} />
              {x(b.end) - x(b.begin) > TEXT_MIN && (
                <text x={`${(x(b.begin) + x(b.end)) / 2}%`} y={b.queue * ROW + ROW / 2 + 5}>{b.micro_batch}</text>
              )}
            </g>
          ))}
        </svg>
      </div>
      {!byMicroBatch && (
        <ul class="legend" aria-label="Colours">
          {PHASES.filter((phase) => boxes.some((b) => b.phase === phase)).map((phase) => (
            <li><span class="key" style={{ background: phaseColour(phase) }} />{phase}</li>))}
        </ul>
      )}
      <p class="note">The number in a box is its micro-batch; a narrow box has none. A box leads to the timeline.</p>
      <Table name={`What each device did in these ${time(to - from)}`} rows={rows} columns={[
        { title: "device", cell: (r) => r.name },
        { title: "acts", number: true, cell: (r) => r.acts },
        { title: "busy", number: true, cell: (r) => time(r.busy) },
        { title: "without such an act", number: true, cell: (r) => percent(r.idle) },
      ]} />
    </section>
  );
}
