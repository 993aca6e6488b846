// The verdict: where the time of a step goes, and what would make it shorter.

import { h } from "preact";
import { Part, Report, WhySlow } from "./bundle";
import { PARTS } from "./colours";
import { Ending } from "./ending";
import { Bar, Table, Term } from "./ui";
import { bytes, count, percent, time } from "./units";
import { ViewProps } from "./view";

const CAUSES = 5;
// The titles of the views that show causes (app.tsx).
const PLACES: { [view: string]: string } = {
  devices: "Devices and waits", pipeline: "Pipeline", registers: "Registers", skew: "Skew", timeline: "Timeline",
};
// The words that explain the parts of a step (tools/trace/step_parts.cc).
const PART_WORDS: { [part: string]: string } = {
  "packing and combining": "packing and combining", "waits for tokens under way": "under way",
  "bubble of the pipeline": "bubble in a step", "waits for late ranks": "late ranks", "waits for input of the own rank": "starved",
  "waits for free slots": "slot", "between acts": "between acts",
};

function partName(name: string): JSX.Element {
  const word = PART_WORDS[name];
  return word === undefined ? <span>{name}</span> : <Term word={word}>{name}</Term>;
}

function Stack({ parts, step_ns }: { parts: Part[]; step_ns: number }): JSX.Element {
  const told = parts.map((part) => `${part.name} ${percent(part.share)}`).join(", ");
  return (
    <div>
      <div class="stack" role="img" aria-label={`a step of ${time(step_ns)}: ${told}`}>
        {parts.map((part, i) => part.share > 0.002 && (
          <span class={`part part${i}`} style={{ width: `${part.share * 100}%`, background: PARTS[i] }}
                title={`${part.name}: ${time(part.ns_per_step)}, ${percent(part.share)}`} />
        ))}
      </div>
      <ul class="legend">
        {parts.map((part, i) => part.share > 0.0005 && (
          <li><span class={`key part${i}`} style={{ background: PARTS[i] }} />
            {partName(part.name)} <b>{time(part.ns_per_step)}</b> {percent(part.share)}</li>
        ))}
      </ul>
    </div>
  );
}

export function Verdict({ run, go }: ViewProps): JSX.Element {
  const report = run.object.report;
  const why = report.why_slow;
  if (why === undefined) {
    return (
      <section>
        <h2>Verdict</h2>
        <Ending run={run} go={go} />
        <p>The causes, the critical path and the gain of changes are unknown: {report.why_slow_error}.</p>
      </section>
    );
  }
  const errorOfReplay = why.replayed_step_ns / Math.max(1, why.recorded_step_ns) - 1;
  const ofAll = why.parts.reduce((sum, part) => sum + part.ns_per_step, 0);
  const toStep = (step: number) => {
    const found = run.object.steps.find((s) => s.step === step);
    if (found) go({ view: "timeline", from: found.begin_ns, to: found.end_ns });
  };
  // On the timeline, a typical step shows more than the whole run.
  const toCause = (cause: WhySlow["causes"][number]) => {
    const typical = run.object.steps.find((s) => s.step === why.typical_step);
    const part = cause.view === "timeline" && typical !== undefined ? typical : undefined;
    go({ view: cause.view, find: cause.find, from: part && part.begin_ns, to: part && part.end_ns });
  };
  return (
    <section>
      <h2>A <Term word="step" /> takes {time(why.recorded_step_ns)}</h2>
      <Ending run={run} go={go} />
      {why.causes.length === 0 && why.advice && <p class="advice">{why.advice}</p>}
      {why.causes.length > 0 && (
        <ol class="causes" aria-label="Causes: missing cores before all others, then the costliest first">
          {why.causes.map((cause) => (
            <li>
              <b>{percent(cause.share)}, {time(cause.ns_per_step)}</b> {cause.text}.{" "}
              {PLACES[cause.view] !== undefined && (
                <button class="link" onClick={() => toCause(cause)}>{`Show it: ${PLACES[cause.view]}`}</button>)}
            </li>
          ))}
        </ol>
      )}
      <p class="note">
        {stepsText(report)}, of {report.devices.length}{" "}
        <Term word="device">{report.devices.length === 1 ? "device" : "devices"}</Term>{report.by_symmetry &&
          `, which stand for ${count(report.ranks)}`}. {why.outliers.length > 0 && (
          <span>Left out as outliers: {why.outliers.map((o, i) => [i > 0 && ", ",
            <button class="link" onClick={() => toStep(o.step)}>{`step ${o.step} (${time(o.ns)})`}</button>,
          ])}</span>)}
      </p>
      {why.outliers.length > 0 && (
        <p class="note">With the outliers, the mean of a step is {time(ofAll)}. The bar divides this time by cause, mean
          of all devices:</p>
      )}
      <Stack parts={why.parts} step_ns={ofAll} />
      <Table
        name="What the critical path of a step is made of"
        rows={why.path_lines}
        most={CAUSES}
        columns={[
          { title: "share", number: true, cell: (line) => percent(line.share) },
          { title: "per step", number: true, cell: (line) => time(line.ns_per_step) },
          { title: "as a bar", cell: (line) => <Bar share={line.share} colour="#0072b2"
            label={percent(line.share)} /> },
          { title: "cause", cell: (line) => (
            <button class="link" onClick={() => go({ view: "timeline", find: between(line.text) })}>{line.text}</button>
          ) },
        ]}
      />
      <Table
        name="What devices really waited for, through all that waited in between"
        rows={why.wait_roots}
        most={CAUSES}
        columns={[
          { title: "share of waits", number: true, cell: (root) => percent(root.share) },
          { title: "per step", number: true, cell: (root) => time(root.ns_per_step) },
          { title: "as a bar", cell: (root) => <Bar share={root.share} colour="#d55e00"
            label={percent(root.share)} /> },
          { title: "root", cell: (root) => root.kind === "between acts" ? <Term word="between acts" /> : (
            <button class="link" onClick={() => go({ view: "timeline", find: root.name })}>
              {root.kind === "work" ? root.name : `${root.name}, on its way`}</button>) },
          { title: "rank", cell: (root) => listed(root.ranks) },
        ]}
      />
      <Table
        name="What a change would gain, each by a replay of this run"
        rows={why.what_if.filter((row) => row.finished)}
        most={2 * CAUSES}
        columns={[
          { title: "saves", number: true, cell: (row) => percent(row.gain || 0) },
          { title: "a step then takes", number: true, cell: (row) => time(row.step_ns || 0) },
          { title: "memory", number: true, cell: (row) => row.more_bytes && !row.change.includes("*=+1000") ?
            `+${bytes(row.more_bytes)}` : "" },
          { title: "change", cell: (row) => row.about },
        ]}
      />
      <p class="note">
        A <Term word="replay" /> without a change is off by {percent(errorOfReplay)}.
        {why.what_if_steps !== undefined && ` Changes are replayed over the last ${why.what_if_steps} steps.`}
      </p>
      {why.slow_ranks.length > 0 && (
        <Table
          name="Ranks that are slower than others at the same work"
          rows={why.slow_ranks}
          columns={[
            { title: "rank", number: true, cell: (slow) => slow.rank },
            { title: "times as long", number: true, cell: (slow) => slow.factor.toFixed(2) },
            { title: "more per step", number: true, cell: (slow) => time(slow.more_ns_per_step) },
            { title: "as the same acts of ranks", cell: (slow) => slow.peers.join(", ") },
            { title: "most of all", cell: (slow) => slow.functions.length > 0 ? slow.functions[0].name : "" },
          ]}
        />
      )}
    </section>
  );
}

// Returns "Mean of steps 2 to 20 (step 1, the first whole one, is left out: it may fill pipelines and caches)".
function stepsText({ first_step: first, last_step: last, left_out_step: left }: Report): string {
  return (first === last ? `This is step ${first} alone` : `Mean of steps ${first} to ${last}`) +
    (left === undefined ? "" : ` (step ${left}, the first whole one, is left out: it may fill pipelines and caches)`);
}

// Returns "0, 1, 2, 3 and 4 more".
function listed(ranks: number[]): string {
  const shown = ranks.slice(0, 4).join(", ");
  return ranks.length > 4 ? `${shown} and ${ranks.length - 4} more` : shown;
}

// Returns the first name in backquotes, to look for.
function between(text: string): string {
  const parts = text.split("`");
  return parts.length > 2 ? parts[1] : "";
}
