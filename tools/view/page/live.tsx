// A run that goes on: how far it is, how it learns, how fast it is, and what each of its processes does.

import { Component, h } from "preact";
import { ask, emptyRun, isOver, LiveRun, LiveState, LiveStep } from "./live_run";
import { PartsNow, RankBars, StackOverSteps } from "./live_parts";
import { Bar, Table, Term } from "./ui";
import { bytes, count, duration, percent, shortCount, shortNumber, time } from "./units";

const ASK_MS = 1000;
const ASK_AGAIN_MS = 3000; // when the server does not answer
const WIDTH = 900;
const HEIGHT = 130;
const MESSAGES = 200;
const FAILURES = 20;
const STALE_MS = 3000;
const STEP_LATE_FACTOR = 5; // as in tools/live/top_text.cc

interface Point {
  x: number; // step
  y: number;
}

// A line breaks where a value is not finite, so that a gap tells of it.
function pathOf(points: (Point | null)[], x: (v: number) => number, y: (v: number) => number): string {
  let path = "";
  let isNew = true;
  for (const point of points) {
    if (point !== null) path += `${isNew ? "M" : "L"}${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`;
    isNew = point === null;
  }
  return path;
}

function Curve({ name, unit, steps, field }: {
  name: string;
  unit: (n: number) => string;
  steps: LiveStep[];
  field: "loss" | "grad_norm" | "items_per_second" | "step_seconds";
}): JSX.Element | null {
  const stride = Math.max(1, Math.floor(steps.length / WIDTH));
  const points: (Point | null)[] = [];
  for (let i = 0; i < steps.length; i += i + stride < steps.length ? stride : Math.max(1, steps.length - 1 - i)) {
    const y = steps[i][field];
    // A restart or a recovery goes back to an earlier step, so the line begins anew there.
    if (steps.slice(Math.max(0, i - stride + 1), i + 1).some((step) => step.begins)) points.push(null);
    points.push(y === null ? null : { x: steps[i].step, y });
  }
  const known = points.filter((p) => p !== null) as Point[];
  if (known.length === 0) return null;
  const most = known.reduce((m, p) => Math.max(m, p.y), -Infinity);
  const least = known.reduce((m, p) => Math.min(m, p.y), Infinity);
  const first = known[0].x;
  const last = known.reduce((m, p) => Math.max(m, p.x), first + 1);
  const x = (v: number) => ((v - first) / (last - first)) * WIDTH;
  const y = (v: number) => HEIGHT - 6 - ((v - least) / (most - least || 1)) * (HEIGHT - 12);
  const now = known[known.length - 1].y;
  return (
    <figure class="curve">
      <figcaption>{name} <b>{unit(now)}</b></figcaption>
      <div class="axes">
        <ol class="scale" aria-hidden="true"><li>{unit(most)}</li><li>{unit(least)}</li></ol>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img"
             aria-label={`${name}: ${unit(known[0].y)} at step ${first}, ${unit(now)} at step ${last}, ` +
                         `between ${unit(least)} and ${unit(most)}`}>
          <path class="fill" d={pathOf(points, x, y)} />
        </svg>
      </div>
      <p class="note scale-x"><span>{`step ${count(first)}`}</span><span>{`step ${count(last)}`}</span></p>
    </figure>
  );
}

function phaseText(state: LiveState, isAlive: boolean, now: number): string {
  if (state.end) return state.end.code === 0 ? "The run has ended."
    : `The run has ended with exit code ${state.end.code}.`;
  if (!isAlive) return "The run is gone: its process ended without a word. It may have been killed.";
  return `The run is ${state.phase}, for ${duration(now - state.phase_since_unix_ms)}.`;
}

function Facts({ run, now }: { run: LiveRun; now: number }): JSX.Element {
  const state = run.state!;
  const facts = state.facts;
  const step = state.step;
  const over = isOver(run);
  const age = now - state.updated_unix_ms;
  const waited = now - (state.stepped_unix_ms || now);
  const late = !over && step && state.phase === "training" &&
    waited > Math.max(STALE_MS, STEP_LATE_FACTOR * 1000 * (step.step_seconds || 0)) ? waited : 0;
  const told: [string, string][] = [];
  if (step && step.step_seconds !== null) told.push(["a step", time(step.step_seconds * 1e9)]);
  if (step && facts && step.items_per_second !== null && !over)
    told.push(["speed", `${shortCount(step.items_per_second)} ${facts.item}/s`]);
  if (step && facts && facts.flops_per_step && step.step_seconds)
    told.push(["arithmetic", `${shortCount(facts.flops_per_step / step.step_seconds, " ")}FLOP/s`]);
  if (step && step.mfu) told.push([`MFU of ${shortCount(facts!.peak_flops || 0, " ")}FLOP/s`, percent(step.mfu)]);
  if (step && step.lr !== null) told.push(["learning rate", shortNumber(step.lr)]);
  if (facts) told.push(["memory of a device, as planned", bytes(facts.bytes_per_rank)]);
  const resident = (state.workers || []).reduce((sum, worker) => sum + worker.resident_bytes, 0) ||
    state.resident_bytes;
  if (resident > 0 && !over) told.push(["memory in RAM", bytes(resident)]);
  if (step && step.seconds_left !== null && !over) told.push(["left", duration(step.seconds_left * 1000)]);
  if (state.restart) {
    told.push(["restarts", `${state.restart.count}, the last after step ${count(state.restart.after_step)}`]);
  }
  if (state.recovery) {
    const { count: times, who, to_step: step, seconds } = state.recovery;
    told.push(["recoveries", `${times}, the last of ${who}, to step ${count(step)}` +
      (seconds === null ? "" : ` in ${time(seconds * 1e9)}`)]);
  }
  if (state.growth) {
    const { count: times, after_step: step, seconds } = state.growth;
    told.push(["growths of the mesh", `${times}, the last after step ${count(step)}` +
      (seconds === null ? "" : ` in ${time(seconds * 1e9)}`)]);
  }
  if (state.epoch !== undefined && state.epoch > 1) told.push(["epoch of the processes", count(state.epoch)]);
  told.push(["running", duration((over ? state.updated_unix_ms : now) - state.started_unix_ms)]);
  return (
    <div>
      <p role="status" class={over && (!state.end || state.end.code !== 0) ? "error" : ""}>
        {phaseText(state, run.isAlive, now)}
        {!over && age > STALE_MS && ` No news for ${duration(age)}: a long step, or the starter is stopped.`}
        {late > 0 && ` No step for ${duration(late)}: look at the heartbeats below for a process that is stopped.`}
        {run.isLost && ` Weir does not answer since ${new Date(run.heard).toLocaleTimeString()}; the page keeps what it has.`}
      </p>
      {step && facts && facts.steps > 0 && (
        <p>step <b>{count(step.step)}</b> of {count(facts.steps)}{" "}
          <Bar share={step.step / facts.steps} colour="#0072b2" label={percent(step.step / facts.steps)} />{" "}
          {percent(step.step / facts.steps)}</p>
      )}
      {state.doing && !over && (
        <p>{state.doing.what}{state.doing.of > 0 && (
          <span>: {state.doing.done} of {state.doing.of} done{" "}
            <Bar share={state.doing.done / state.doing.of} colour="#0072b2"
              label={percent(state.doing.done / state.doing.of)} />
          </span>)}</p>
      )}
      <dl class="facts">{told.map(([name, value]) => <div><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      {facts && facts.flops_per_step && !facts.peak_flops && facts.peak_from && (
        <p class="note"><Term word="MFU" /> is unknown, because the peak is unknown: <code>{facts.peak_from}</code></p>
      )}
    </div>
  );
}

function Processes({ state, over }: { state: LiveState; over: boolean }): JSX.Element | null {
  if (!state.workers || state.workers.length === 0) return null;
  return (
    <Table name="Processes" rows={state.workers} columns={[
      { title: <Term word="rank">ranks</Term>, cell: (w) => w.ranks.join(", ") },
      { title: "host", cell: (w) => w.host || "this" },
      { title: "process", number: true, cell: (w) => w.pid > 0 ? String(w.pid) : "" },
      { title: "last heartbeat", cell: (w) => over ? "the run is over" : w.state === "connected"
        ? `${duration(w.silent_ms)} ago` : w.state },
      { title: "memory in RAM", number: true, cell: (w) => w.resident_bytes > 0 && !over
        ? bytes(w.resident_bytes) : "" },
      { title: <Term word="act">acts</Term>, number: true, cell: (w) => count(w.acts) },
      { title: "does", cell: (w) => over ? "" : w.activity },
    ]} />
  );
}

// Every failure that the run has survived, the last one first.
function Failures({ run }: { run: LiveRun }): JSX.Element | null {
  const survived = run.events.flatMap(({ at_ms, restart, recovery }) => {
    const failure = restart || recovery;
    if (!failure) return [];
    return (failure.earlier_reports || []).concat(failure.report)
      .map((report) => ({ at_ms, after_step: failure.after_step, report }));
  }).reverse();
  if (survived.length === 0) return null;
  const first = (report: string) => (report.split("\n").find((line) => /first failure/.test(line)) ||
    report.split("\n")[0] || "").replace(/^.*?first failure: /, "");
  return (
    <Table name="Failures that the run has survived" rows={survived} most={FAILURES} columns={[
      { title: "after", number: true, cell: (event) => duration(event.at_ms) },
      { title: "after step", number: true, cell: (event) => count(event.after_step) },
      { title: "what failed", cell: (event) => (
        <details><summary>{first(event.report)}</summary>
          <pre class="card">{event.report}</pre></details>) },
    ]} />
  );
}

function Messages({ run }: { run: LiveRun }): JSX.Element {
  const said = run.events.filter((event) => event.said !== undefined ||
    event.phase !== undefined).slice(-MESSAGES).reverse();
  return (
    <Table name="What the run said" rows={said} columns={[
      { title: "after", number: true, cell: (event) => duration(event.at_ms) },
      { title: "message", cell: (event) => event.said !== undefined ? (
        <span class={/^(WARNING|ERROR)/.test(event.said) ? "error" : ""}>{event.said}</span>
      ) : <span class="note">{event.phase}</span> },
    ]} />
  );
}

function Run({ run, now }: { run: LiveRun; now: number }): JSX.Element {
  const state = run.state!;
  const facts = state.facts;
  // The last step is in the history only if its turn has come.
  const last = run.steps[run.steps.length - 1];
  const isNew = state.step && (!last || last.step !== state.step.step) && !run.isRestarted;
  const steps: LiveStep[] = isNew ? run.steps.concat([Object.assign({ at_ms: 0 }, state.step)]) : run.steps;
  return (
    <div class="page">
      <header>
        <h1>{state.title}</h1>
        {facts && <p class="note">{shortCount(facts.parameters)} parameters, {facts.ranks === 1 ? "1 device"
          : `${facts.ranks} devices`}
          {facts.mesh && ` (${facts.mesh})`} {facts.where}</p>}
      </header>
      <main>
        <h2>Run</h2>
        <Facts run={run} now={now} />
        {state.end && state.end.report && <pre class="card" aria-label="Report of the failure">{state.end.report}</pre>}
        <div class="curves">
          <Curve name="loss" unit={shortNumber} steps={steps} field="loss" />
          <Curve name="norm of the gradients" unit={shortNumber} steps={steps} field="grad_norm" />
          <Curve name={`${facts ? facts.item : "items"} per second`} unit={shortCount} steps={steps}
            field="items_per_second" />
          <Curve name="time of a step" unit={(s) => time(s * 1e9)} steps={steps} field="step_seconds" />
        </div>
        <div class="by-cause">
          <StackOverSteps steps={steps} names={state.part_names} />
          {state.step && <PartsNow step={state.step} names={state.part_names} />}
        </div>
        {state.evaluation && <p>after step {count(state.evaluation.step)}: {state.evaluation.text}</p>}
        <Failures run={run} />
        <RankBars state={state} />
        <Processes state={state} over={isOver(run)} />
        <Messages run={run} />
        <p class="note">The acts of a run, with the causes of its waits, are in its trace: <code>weir train --trace
          FILE</code>,
          then <code>weir view FILE</code>.</p>
      </main>
    </div>
  );
}

// Asks the server again and again until the run is over and all of its history is here.
export class Live extends Component<{}, { run: LiveRun; now: number }> {
  private timer = 0;

  constructor(props: {}) {
    super(props);
    this.state = { run: emptyRun(), now: Date.now() };
  }
  componentDidMount(): void {
    this.look();
  }
  componentWillUnmount(): void {
    clearTimeout(this.timer);
  }

  private async look(): Promise<void> {
    const { run, more } = await ask(this.state.run);
    this.setState({ run, now: Date.now() });
    if (run.state) {
      document.title = `${run.state.title} – Weir`;
      document.documentElement.dataset.ready = "yes";
    }
    if (isOver(run) && !more && !run.isLost) return;
    this.timer = window.setTimeout(() => this.look(), more ? 0 : run.isLost ? ASK_AGAIN_MS : ASK_MS);
  }

  render(): JSX.Element {
    const { run, now } = this.state;
    if (run.state === undefined) return <p class={run.isLost ? "error" : "note"}>{run.isLost ? "Weir does not answer."
      : "Reading the run …"}</p>;
    return <Run run={run} now={now} />;
  }
}
