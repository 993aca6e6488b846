// The pipeline of one step as it ran, and below it as the plan expects it: a row for each device, a box for each act of
// a micro-batch.

import { Component, h } from "preact";
import { Run } from "./bundle";
import { microBatchColour, phaseColour } from "./colours";
import { Table, Term } from "./ui";
import { percent, time } from "./units";
import { actText, nameOf, ViewProps } from "./view";

const ROW = 30; // pixels
const TEXT_MIN = 1.2; // percent of the width
const PHASES = ["forward", "backward", "weight gradient"];

interface Box {
  act: number; // -1: of the plan
  queue: number;
  begin: number;
  end: number;
  phase: string;
  micro_batch: number;
  text: string;
}

// Returns the acts of a step that a pipeline hands from stage to stage, queue by queue, and on a queue by their begin.
function boxesOf(run: Run, step: number): Box[] {
  const c = run.columns;
  const boxes: Box[] = [];
  for (let queue = 0; queue + 1 < c.queue_first_act.length; ++queue) {
    for (let act = c.queue_first_act[queue]; act < c.queue_first_act[queue + 1]; ++act) {
      if (c.act_step[act] !== step) continue;
      const phase = nameOf(run, "actor_phase", c.act_actor[act]);
      if (PHASES.indexOf(phase) < 0) continue;
      boxes.push({ act, queue, phase, begin: c.act_begin[act], end: c.act_begin[act] + c.act_ns[act],
                   micro_batch: c.act_micro_batch[act], text: actText(run, act) });
    }
  }
  return boxes;
}

// Returns the same acts of a step as the plan expects it. None: the trace does not say what the plan expects.
function plannedBoxes(run: Run): Box[] {
  const c = run.columns;
  const boxes: Box[] = [];
  for (let i = 0; i < c.planned_begin.length; ++i) {
    const actor = c.planned_actor[i];
    const micro_batch = c.planned_micro_batch[i];
    boxes.push({ act: -1, queue: c.actor_queue[actor], phase: nameOf(run, "actor_phase", actor),
                 begin: c.planned_begin[i], end: c.planned_begin[i] + c.planned_ns[i], micro_batch,
                 text: `${nameOf(run, "actor_function", actor)}, micro-batch ${micro_batch}, as planned` });
  }
  return boxes.sort((a, b) => a.queue - b.queue || a.begin - b.begin);
}

// Returns the time from the first begin to the last end.
function spanOf(boxes: Box[]): { from: number; ns: number } {
  const from = boxes.reduce((least, b) => Math.min(least, b.begin), Infinity);
  return { from, ns: Math.max(1, boxes.reduce((most, b) => Math.max(most, b.end), 0) - from) };
}

interface ChartProps {
  name: string;
  rows: string[]; // the names of the queues
  boxes: Box[]; // as boxesOf sorts them
  width_ns: number; // that the width of the chart stands for
  byMicroBatch: boolean;
  pick?: (box: Box) => void; // shows a box elsewhere; absent: nothing shows it
}

// A chart of boxes. One box has the focus, and the arrow keys move it.
class Chart extends Component<ChartProps, { at: number; isTold: boolean }> {
  private svg: SVGElement | null = null;

  constructor(props: ChartProps) {
    super(props);
    this.state = { at: 0, isTold: false };
  }

  private focus(at: number): void {
    this.setState({ at });
    (this.svg!.querySelectorAll(".box")[at] as SVGElement).focus();
  }

  // Returns the box of the next queue above or below that has boxes, the nearest in time.
  private across(at: number, by: number): number {
    const { boxes } = this.props;
    const { begin, queue } = boxes[at];
    let to = at;
    while (to >= 0 && to < boxes.length && boxes[to].queue === queue) to += by;
    if (to < 0 || to >= boxes.length) return at;
    const other = boxes[to].queue;
    for (let i = to; i >= 0 && i < boxes.length && boxes[i].queue === other; i += by) {
      if (Math.abs(boxes[i].begin - begin) < Math.abs(boxes[to].begin - begin)) to = i;
    }
    return to;
  }

  private onKey(event: KeyboardEvent, at: number): void {
    const { boxes, pick } = this.props;
    switch (event.key) {
      case "ArrowLeft": this.focus(Math.max(0, at - 1)); break;
      case "ArrowRight": this.focus(Math.min(boxes.length - 1, at + 1)); break;
      case "ArrowUp": this.focus(this.across(at, -1)); break;
      case "ArrowDown": this.focus(this.across(at, 1)); break;
      case "Home": this.focus(0); break;
      case "End": this.focus(boxes.length - 1); break;
      case "Enter": case " ": if (pick) pick(boxes[at]); break;
      default: return;
    }
    event.preventDefault();
  }

  render(): JSX.Element {
    const { name, rows, boxes, width_ns, byMicroBatch, pick } = this.props;
    const { from } = spanOf(boxes);
    const x = (ns: number) => ((ns - from) / width_ns) * 100;
    const focused = Math.min(this.state.at, boxes.length - 1); // another step may have fewer
    return (
      <figure class="pipeline">
        <figcaption>{name}</figcaption>
        <div class="chart">
          <ol>{rows.map((row) => <li style={{ height: `${ROW}px` }}>{row}</li>)}</ol>
          <svg role="group" aria-label={`${name}: ${boxes.length} acts on ${rows.length} devices`}
               style={{ height: `${rows.length * ROW}px` }} ref={(svg) => { this.svg = svg as SVGElement | null; }}>
            {boxes.map((b, i) => {
              const told = `${b.text}, ${time(b.end - b.begin)}`;
              return (
                <g class={pick ? "box leads" : "box"} role={pick ? "button" : "img"} aria-label={told}
                   tabIndex={i === focused ? 0 : -1} onClick={pick && (() => pick(b))}
                   onFocus={() => this.setState({ at: i, isTold: true })}
                   onBlur={() => this.setState({ isTold: false })}
                   onKeyDown={(e: KeyboardEvent) => this.onKey(e, i)}>
                  <title>{told}</title>
                  <rect x={`${x(b.begin)}%`} y={b.queue * ROW + 3} width={`${Math.max(0.05, x(b.end) - x(b.begin))}%`}
                        height={ROW - 6}
                        style={{ fill: byMicroBatch ? microBatchColour(b.micro_batch) : phaseColour(b.phase) }} />
                  {x(b.end) - x(b.begin) > TEXT_MIN && (
                    <text x={`${(x(b.begin) + x(b.end)) / 2}%`} y={b.queue * ROW + ROW / 2 + 5}>{b.micro_batch}</text>
                  )}
                </g>
              );
            })}
          </svg>
        </div>
        {this.state.isTold && <p class="note">{rows[boxes[focused].queue]}: {boxes[focused].text},{" "}
          {time(boxes[focused].end - boxes[focused].begin)}, {time(boxes[focused].begin - from)} after the first.</p>}
      </figure>
    );
  }
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
  const planned = plannedBoxes(run);
  const span = spanOf(boxes);
  const width_ns = planned.length > 0 ? Math.max(span.ns, spanOf(planned).ns) : span.ns;
  const byMicroBatch = state.colour === "micro-batch";
  const rows = run.object.queues.map((queue, q) => {
    const own = boxes.filter((b) => b.queue === q);
    const busy = own.reduce((sum, b) => sum + b.end - b.begin, 0);
    return { name: queue.name, acts: own.length, busy, idle: 1 - busy / span.ns };
  });
  return (
    <section>
      <h2>Pipeline of step {step}</h2>
      <p>
        {report.stages} <Term word="stage">stages</Term>, {report.micro_batches} micro-batches
        {report.schedule && `, ${report.schedule}`}. From the first forward act to the last backward act a device has no
        such act for {percent(report.pipeline_bubble)} of the time, mean of all steps: the <Term word="bubble" />.
        {report.predicted_bubble > 0 && ` The plan expected ${percent(report.predicted_bubble)}.`}
        {report.stages > 1 && report.bubble_formula > 0 &&
          ` Stages of equal work without any waits would have ${percent(report.bubble_formula)}.`}
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
      <Chart name={`As it ran: ${time(span.ns)}`} rows={rows.map((r) => r.name)} boxes={boxes} width_ns={width_ns}
        byMicroBatch={byMicroBatch} pick={(b) => {
          const around = 2 * (b.end - b.begin);
          go({ view: "timeline", act: b.act, from: b.begin - around, to: b.end + around });
        }} />
      {planned.length > 0 && <Chart name={`As the plan expects it: ${time(spanOf(planned).ns)}`}
        rows={rows.map((r) => r.name)} boxes={planned} width_ns={width_ns} byMicroBatch={byMicroBatch} />}
      {!byMicroBatch && (
        <ul class="legend" aria-label="Colours">
          {PHASES.filter((phase) => boxes.some((b) => b.phase === phase)).map((phase) => (
            <li><span class="key" style={{ background: phaseColour(phase) }} />{phase}</li>))}
        </ul>
      )}
      <p class="note">The number in a box is its micro-batch; a narrow box has none. A box of the run leads to the
        timeline. Keys: arrows go from box to box, Enter follows a box. {planned.length > 0 && (
          <span>Both charts have one scale. The second is a <Term word="replay" /> in which acts and messages take the
            time of the costs that the plan was made with.</span>)}</p>
      <Table name={`What each device did in these ${time(span.ns)}`} rows={rows} columns={[
        { title: "device", cell: (r) => r.name },
        { title: "acts", number: true, cell: (r) => r.acts },
        { title: "busy", number: true, cell: (r) => time(r.busy) },
        { title: "without such an act", number: true, cell: (r) => percent(r.idle) },
      ]} />
    </section>
  );
}
