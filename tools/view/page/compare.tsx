// Two runs of a job side by side: where the time of a step went in each.

import { h } from "preact";
import { Diff, DiffRow } from "./bundle";
import { ColumnOf, Table, Term } from "./ui";
import { percent, time } from "./units";
import { ViewProps } from "./view";

const ROWS = 30;
const STEPS = 60;

// A bar to the left of a middle line where B is faster, to the right where it is slower.
function Change({ ns, most }: { ns: number; most: number }): JSX.Element {
  const width = `${(Math.min(1, Math.abs(ns) / Math.max(1, most)) * 50).toFixed(1)}%`;
  const place = ns < 0 ? { right: "50%", width } : { left: "50%", width };
  return (
    <span class="change" role="img" aria-label={`B takes ${time(Math.abs(ns))} ${ns < 0 ? "less" : "more"}`}>
      <span class={ns < 0 ? "less" : "more"} style={place} />
    </span>
  );
}

function signed(ns: number): string {
  return `${ns > 0 ? "+" : ""}${time(ns)}`;
}

function orNone(ns: number | null): string {
  return ns === null ? "–" : time(ns);
}

// Returns the columns of two times and their difference.
function times<Row extends { a_ns: number | null; b_ns: number | null; more_ns: number }>(
  rows: Row[]): ColumnOf<Row>[] {
  const most = rows.reduce((sum, row) => Math.max(sum, Math.abs(row.more_ns)), 1);
  return [
    { title: "A", number: true, cell: (row) => orNone(row.a_ns) },
    { title: "B", number: true, cell: (row) => orNone(row.b_ns) },
    { title: "B − A", number: true, cell: (row) => <span>{signed(row.more_ns)} <Change ns={row.more_ns}
      most={most} /></span> },
  ];
}

function Rows({ name, rows, most }: { name: string; rows: DiffRow[]; most: number }): JSX.Element {
  const of: ColumnOf<DiffRow>[] = rows.some((row) => row.name) ? [{ title: "of", cell: (row) => row.name }] : [];
  return <Table name={name} rows={rows} most={most}
    columns={[...times(rows), { title: "cause", cell: (row) => row.cause }, ...of]} />;
}

function Steps({ diff, go, view }: { diff: Diff; go: ViewProps["go"]; view: ViewProps["run"] }): JSX.Element {
  const most = diff.steps.reduce((ns, step) => Math.max(ns, step.a_ns || 0, step.b_ns || 0), 1);
  const bar = (ns: number | null, colour: string, label: string) => ns === null ? "" : (
    <span class="bar" role="img" aria-label={`${label} ${time(ns)}`}>
      <span style={{ width: `${((ns / most) * 100).toFixed(1)}%`, background: colour }} /></span>);
  const show = (step: number) => {
    const found = view.object.steps.find((s) => s.step === step);
    return found === undefined ? `${step}` : (
      <button class="link" onClick={() =>
        go({ view: "timeline", from: found.begin_ns, to: found.end_ns })}>{String(step)}</button>);
  };
  return (
    <Table name="Steps side by side; a number leads to the timeline of A" rows={diff.steps} most={STEPS} columns={[
      { title: "step", number: true, cell: (step) => show(step.step) },
      { title: "A", number: true, cell: (step) => orNone(step.a_ns) },
      { title: "A as a bar", cell: (step) => bar(step.a_ns, "#0072b2", "A") },
      { title: "B", number: true, cell: (step) => orNone(step.b_ns) },
      { title: "B as a bar", cell: (step) => bar(step.b_ns, "#e69f00", "B") },
      { title: "B − A", number: true, cell: (step) => step.a_ns === null || step.b_ns === null ? "" :
        signed(step.b_ns - step.a_ns) },
    ]} />
  );
}

export function Compare({ run, go }: ViewProps): JSX.Element {
  const diff = run.object.diff!;
  return (
    <section>
      <h2>Two runs</h2>
      <p class="advice">{diff.verdict}.</p>
      <p>
        A is {diff.a.name} on {diff.a.ranks} ranks, B is {diff.b.name} on {diff.b.ranks}. {diff.actors_matched}{" "}
        <Term word="actor">actors</Term> match: their plan nodes have one name and one rank. Only A has{" "}
        {diff.actors_only_a}, only B {diff.actors_only_b}. The other views show A.{" "}
        {diff.actors_matched < diff.actors_only_a && "Most actors of A have no like in B, as with another job or another " +
          "mesh: the tables compare the causes, and few acts. "}
        B takes {percent(diff.b.step_ns / Math.max(1, diff.a.step_ns))} of the time of A for a step.
      </p>
      <Rows name="Parts of a step, mean over all queues" rows={diff.parts} most={ROWS} />
      <Rows name="The critical path of a step; these rows add up to the difference" rows={diff.path} most={ROWS} />
      <Rows name="What devices really waited for, mean over all queues" rows={diff.waits} most={ROWS} />
      <Table name="The acts of actors that match, per step and rank" rows={diff.work} most={ROWS} columns={[
        ...times(diff.work),
        { title: "an act, A to B", number: true, cell: (row) => `${time(row.a_act_ns)} to ${time(row.b_act_ns)}` },
        { title: "function", cell: (row) => row.name },
        { title: "phase", cell: (row) => row.phase },
        { title: "actors", number: true, cell: (row) => row.only_a + row.only_b === 0 ? row.matched :
          `${row.matched}; only A ${row.only_a}, only B ${row.only_b}` },
      ]} />
      <Steps diff={diff} go={go} view={run} />
    </section>
  );
}
