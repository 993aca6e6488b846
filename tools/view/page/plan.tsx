// The plan of a job before any run: whether it fits, what a step is predicted to take, how tensors lie on the mesh, and
// what is sent. All figures and sentences come from `weir plan`.

import { h } from "preact";
import { Bundle, Plan, PlannedFunction, PlannedRank, PlannedTensor } from "./bundle";
import { State } from "./state";
import { Bar, Table, Term } from "./ui";
import { bytes, percent, time } from "./units";

const BOXINGS = 30;
const ROWS = 400;
const BLUE = "#0072b2";

interface PlanProps {
  plan: Plan;
  bundle: Bundle;
  state: State;
  go: (change: Partial<State>) => void;
}

// Returns the stages as rows: what each computes.
function stagesOf(plan: Plan): { stage: number; calls: string; in_flight: string }[] {
  const stages: { stage: number; calls: string; in_flight: string }[] = [];
  for (const part of plan.schedule.parts) {
    const calls = part.calls.join(", ");
    const known = stages.find((s) => s.stage === part.stage);
    if (known === undefined) stages.push({ stage: part.stage, calls, in_flight: String(part.in_flight) });
    else {
      known.calls += `; ${calls}`;
      known.in_flight += ` and ${part.in_flight}`;
    }
  }
  return stages;
}

function Facts({ plan }: { plan: Plan }): JSX.Element {
  const { lines } = plan;
  const rows: { word: JSX.Element | string; text: string }[] = [
    { word: "job", text: lines.job },
  ];
  if (lines.precision !== undefined) rows.push({ word: "precision", text: lines.precision });
  rows.push({ word: <Term word="predicted">step</Term>, text: lines.step });
  if (lines.time !== undefined) rows.push({ word: "time", text: lines.time });
  rows.push({ word: <Term word="arena">memory</Term>, text: lines.memory }, { word: "bytes", text: lines.bytes });
  if (lines.hosts !== undefined) rows.push({ word: "hosts", text: lines.hosts });
  return <dl class="lines">{rows.map((row) => [<dt>{row.word}</dt>, <dd>{row.text}</dd>])}</dl>;
}

// The rules that a search has found for the job, in words and as text for the job.
function RulesFound({ plan }: { plan: Plan }): JSX.Element | null {
  if (plan.rules_found === undefined) return null;
  return (
    <section>
      <h3>Rules that the search found</h3>
      <p>{plan.rules_found.text.replace(/^rules found: /, "")}</p>
      <details><summary>As text for the job, in place of its rules and of rules: AUTO</summary>
        <pre class="card">{plan.rules_found.job_text}</pre></details>
    </section>
  );
}

function Warnings({ warnings }: { warnings: string[] }): JSX.Element {
  if (warnings.length === 0) return <p class="note">No warnings.</p>;
  return (
    <div>
      <h3>Warnings</h3>
      <ul class="causes">{warnings.map((text) => <li>{text}</li>)}</ul>
    </div>
  );
}

function Devices({ plan }: { plan: Plan }): JSX.Element {
  const most = plan.fit.device_bytes_max;
  type Device = Plan["devices"][0];
  const ofLimit = most === undefined ? [] :
    [{ title: `of the ${bytes(most)} of a device`, number: true, cell: (d: Device) => percent(d.bytes / most) }];
  return (
    <Table name="Devices in a predicted step" rows={plan.devices} columns={[
      { title: <Term word="rank" />, number: true, cell: (d: Device) => d.rank },
      { title: "device", cell: (d) => d.name },
      { title: "computing", number: true, cell: (d) => percent(d.computing) },
      { title: "as a bar", cell: (d) =>
        <Bar share={d.computing} colour={BLUE} label={`computing ${percent(d.computing)}`} /> },
      { title: "packing messages", number: true, cell: (d) => percent(d.packing) },
      { title: "waiting", number: true, cell: (d) => percent(d.waiting) },
      { title: "memory", number: true, cell: (d) => bytes(d.bytes) },
      ...ofLimit,
    ]} />
  );
}

function Memory({ ranks }: { ranks: PlannedRank[] }): JSX.Element {
  return (
    <Table name="What the memory of ranks is for, as planned" rows={ranks} columns={[
      { title: <Term word="rank" />, number: true, cell: (r) => r.rank },
      { title: "device", cell: (r) => r.device },
      { title: <Term word="arena" />, number: true, cell: (r) => bytes(r.arena_bytes) },
      { title: "weights", number: true, cell: (r) => bytes(r.memory.weight_bytes) },
      { title: "optimiser", number: true, cell: (r) => bytes(r.memory.optimiser_bytes) },
      { title: "activations and gradients", number: true, cell: (r) =>
        bytes(r.memory.register_bytes + r.memory.landing_bytes) },
      { title: <Term word="scratch" />, number: true, cell: (r) => bytes(r.memory.scratch_bytes) },
      { title: <Term word="actor">actors</Term>, number: true, cell: (r) => r.actors },
      { title: <Term word="register">registers</Term>, number: true, cell: (r) => r.registers },
    ]} />
  );
}

// The largest tensors of a rank, which the reader picks, and why each lives as long as it does.
function Largest({ ranks, state, go }: { ranks: PlannedRank[]; state: State; go: PlanProps["go"] }): JSX.Element | null {
  if (ranks.length === 0) return null;
  const fullest = ranks.reduce((a, b) => b.memory.most_alive_bytes > a.memory.most_alive_bytes ? b : a);
  const shown = ranks.find((r) => r.rank === state.rank) || fullest;
  type Tensor = PlannedRank["memory"]["largest"][0];
  return (
    <section>
      <h3>The largest tensors of rank {shown.rank}</h3>
      {ranks.length > 1 && (
        <div class="controls"><label>Rank <select value={String(shown.rank)}
          onChange={(e: Event) => go({ rank: Number((e.target as HTMLSelectElement).value) })}>
          {ranks.map((r) => <option value={String(r.rank)}>{`${r.rank}, ${bytes(r.memory.most_alive_bytes)} alive at most`}</option>)}
        </select></label></div>
      )}
      <Table name={`What lives on rank ${shown.rank}, the largest first`} rows={shown.memory.largest} columns={[
        { title: "bytes", number: true, cell: (t: Tensor) => bytes(t.bytes) },
        { title: <Term word="slot">slots</Term>, number: true, cell: (t) => t.slots },
        { title: "tensor", cell: (t) => t.name },
        { title: "alive from", cell: (t) => t.from },
        { title: "until", cell: (t) => t.until },
        { title: "why", cell: (t) => t.why },
      ]} />
    </section>
  );
}

function Boxings({ plan }: { plan: Plan }): JSX.Element {
  return (
    <Table name="Boxings, the costliest first" rows={plan.boxings} most={BOXINGS} columns={[
      { title: "share", number: true, cell: (b) => percent(b.bytes_per_step / Math.max(1, plan.bytes_per_step)) },
      { title: "bytes per step", number: true, cell: (b) => bytes(b.bytes_per_step) },
      { title: "method", cell: (b) => b.method },
      { title: "of", cell: (b) =>
        `${b.name}${b.times > 1 ? `, ${b.times} times` : ""}${b.stages === undefined ? "" : `, ${b.stages}`}` },
      { title: <Term word="layout">layouts</Term>, cell: (b) => <code>{b.layouts}</code> },
      { title: <Term word="busiest link" />, cell: (b) => b.busiest_link === undefined ? "" :
        `${b.busiest_link.from} to ${b.busiest_link.to}, ${bytes(b.busiest_link.bytes_per_step)}` },
      { title: <Term word="rule">why</Term>, cell: (b) => b.why || "" },
    ]} />
  );
}

function Layouts({ functions, state, go }: {
  functions: PlannedFunction[]; state: State; go: PlanProps["go"]
}): JSX.Element {
  const picked = state.function !== undefined && functions[state.function] !== undefined ? state.function : 0;
  const shown = functions[picked];
  const all = state.inside === 1;
  const tensors = all ? shown.tensors : shown.tensors.filter((t) => t.role !== "inside");
  return (
    <section>
      <h3>Layouts of <Term word="function">function</Term> {shown.name}</h3>
      <div class="controls">
        <label>Function <select value={String(picked)}
          onChange={(e: Event) => go({ function: Number((e.target as HTMLSelectElement).value) })}>
          {functions.map((f, i) =>
            <option value={String(i)}>{`${f.name}, ${f.calls} ${f.calls === 1 ? "call" : "calls"}`}</option>)}
        </select></label>
        <label><input type="checkbox" checked={all}
          onChange={(e: Event) => go({ inside: (e.target as HTMLInputElement).checked ? 1 : undefined })} />{" "}
          also tensors that stay inside</label>
      </div>
      <Table name={`Tensors of ${shown.first_call}${shown.calls > 1 ? ` and ${shown.calls - 1} more` : ""}`}
        rows={tensors} most={ROWS} columns={[
        { title: "tensor", cell: (t: PlannedTensor) => t.name },
        { title: "is", cell: (t) => t.role === "output" || t.role === "inside" ? `${t.role}, by ${t.what}` : t.role },
        { title: "type", cell: (t) => <code>{t.type}</code> },
        { title: <Term word="layout" />, cell: (t) => <code>{t.layout}</code> },
        { title: <Term word="rule">why</Term>, cell: (t) => t.why },
      ]} />
    </section>
  );
}

export function PlanView({ plan, bundle, state, go }: PlanProps): JSX.Element {
  const stages = stagesOf(plan);
  return (
    <section>
      <h2>{plan.prediction.step_seconds > 0 ?
        `A step is predicted to take ${time(plan.prediction.step_seconds * 1e9)}` : "A plan before any run"}</h2>
      <p class={plan.fit.fits ? "advice" : "advice error"}><Term word="fit">Memory</Term> {plan.fit.text}</p>
      <Facts plan={plan} />
      <RulesFound plan={plan} />
      <Warnings warnings={plan.warnings} />
      {bundle.no_run !== undefined && <p class="note">The views of a simulated run are not here: {bundle.no_run}.</p>}
      {stages.length > 1 && (
        <Table name={`Stages, ${plan.schedule.kind}` +
          (plan.schedule.bubble_of_even_parts === undefined ? ", some side by side" :
            `: a bubble of ${percent(plan.schedule.bubble_of_even_parts)} if all parts are even`) +
          (plan.schedule.predicted_bubble > 0 ?
            `, a bubble of ${percent(plan.schedule.predicted_bubble)} with these costs` : "")}
            rows={stages} columns={[
          { title: <Term word="stage" />, cell: (s) => s.stage },
          { title: "computes", cell: (s) => s.calls },
          { title: "micro-batches in flight", number: true, cell: (s) => s.in_flight },
        ]} />
      )}
      {plan.devices.length > 0 && <Devices plan={plan} />}
      <Memory ranks={plan.ranks} />
      <Largest ranks={plan.ranks} state={state} go={go} />
      <Boxings plan={plan} />
      <Layouts functions={plan.functions} state={state} go={go} />
      {bundle.run === undefined && (
        <div>
          <h3>Times as planned</h3>
          <pre class="card" role="region" aria-label="Times as planned" tabIndex={0}>{plan.schedule.text}</pre>
        </div>
      )}
    </section>
  );
}
