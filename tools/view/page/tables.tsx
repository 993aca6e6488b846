// Views that are tables of the report: waits, devices, transfers.

import { h } from "preact";
import { TransferRow } from "./bundle";
import { Bar, Table, Term } from "./ui";
import { bytes, count, percent, rate, time } from "./units";
import { ViewProps } from "./view";

const ROWS = 60;

export function Devices({ run, go }: ViewProps): JSX.Element {
  const report = run.object.report;
  return (
    <section>
      <h2><Term word="device">Devices</Term> and ranks</h2>
      <Table name="What each device did in a step" rows={report.devices} columns={[
        { title: "device", cell: (d) => d.name },
        { title: "busy", number: true, cell: (d) => percent(d.busy) },
        { title: "as a bar", cell: (d) => <Bar share={d.busy} colour="#0072b2" label={`busy ${percent(d.busy)}`} /> },
        { title: "waits for input", number: true, cell: (d) => percent(d.waits_for_input) },
        { title: "for free slots", number: true, cell: (d) => percent(d.waits_for_credit) },
        { title: <Term word="between acts" />, number: true, cell: (d) => percent(d.between_acts) },
        { title: <Term word="had a core" />, number: true, cell: (d) => d.core_share === undefined ? "" : percent(d.core_share) },
      ]} />
      <Table name="The longest waits" rows={report.waits} most={ROWS} columns={[
        { title: "rank", number: true, cell: (w) => w.rank },
        { title: "share of its time", number: true, cell: (w) => percent(w.share) },
        { title: "in all steps", number: true, cell: (w) => time(w.total_ns) },
        { title: "times", number: true, cell: (w) => w.times },
        { title: "for", cell: (w) => w.for === "input" ? "a\u00a0token\u00a0of" : "a\u00a0free\u00a0slot\u00a0of" },
        { title: "register", cell: (w) =>
          <button class="link" onClick={() => go({ view: "timeline", find: w.register })}>{w.register}</button> },
        { title: "held by", cell: (w) => w.holder },
      ]} />
    </section>
  );
}

// The layouts of a transfer's tensors before and after. Tensors of equal layouts are one line. A place of one device
// has no axes to lie over.
function Changes({ transfer }: { transfer: TransferRow }): JSX.Element {
  const { changes, from_stage, to_stage } = transfer;
  return (
    <ul class="changes">
      {(changes || []).filter((c) => c.from !== "[]").map((c) => (
        <li><code>{`${c.from} → ${c.to}`}</code>{c.tensors > 1 && ` ${c.tensors} tensors`}</li>
      ))}
      {from_stage !== undefined && <li>{`from stage ${from_stage} to stage ${to_stage}`}</li>}
    </ul>
  );
}

function Reasons({ transfer }: { transfer: TransferRow }): JSX.Element {
  return <div class="reasons">{(transfer.why || []).map((reason) => reason.text.replace("->", "→")).join(", ")}</div>;
}

// A figure, and under it the figure that the plan was made with.
function Beside({ has, planned, text }: {
  has?: number; planned?: number; text: (value: number) => string
}): JSX.Element {
  return <div>{has === undefined ? "–" : text(has)}{planned !== undefined &&
    <div class="planned">{text(planned)}</div>}</div>;
}

export function Transfers({ run, go }: ViewProps): JSX.Element {
  const report = run.object.report;
  const rows = report.why_slow === undefined ? [] : report.why_slow.transfers;
  return (
    <section>
      <h2><Term word="layout">Layouts</Term> and <Term word="boxing">boxings</Term></h2>
      <p>
        Devices waited for tokens of these transfers and had nothing else to do. After the token was sent the wait is
        communication; before, the sender was one of the <Term word="late ranks" />. The speed is that of the messages
        which were waited for: the record does not show how long others took. The speed of the link is that of the same
        messages, by the costs that the plan was made with. The column “why” has the rule, or the reader,
        for which the compiler chose the layout.
      </p>
      <Table name="Boxings of all layers, longest waits first" rows={rows} most={ROWS} columns={[
        { title: "boxing", cell: (t) =>
          <button class="link" onClick={() => go({ view: "timeline", find: t.name })}>{t.name}</button> },
        { title: <Term word="layout">layout before and after</Term>, cell: (t) => <Changes transfer={t} /> },
        { title: <Term word="rule">why</Term>, cell: (t) => <Reasons transfer={t} /> },
        { title: "bytes per step", number: true, cell: (t) => bytes(t.bytes_per_step) },
        { title: "messages", number: true, cell: (t) => count(t.messages_per_step) },
        { title: "links", number: true, cell: (t) => count(t.links) },
        { title: <Term word="exposed">waits while under way</Term>, number: true, cell: (t) =>
          time(t.under_way_ns_per_step) },
        { title: "before it was sent", number: true, cell: (t) => time(t.late_ns_per_step) },
        { title: "a message takes; below, as planned", number: true, cell: (t) =>
          <Beside has={t.way_ns} planned={t.planned_way_ns} text={time} /> },
        { title: "its speed; below, that of the link", number: true, cell: (t) =>
          <Beside has={t.bytes_per_second} planned={t.planned_bytes_per_second} text={rate} /> },
      ]} />
      <Table name="Exposed communication, mean over all devices" rows={report.exposed} most={ROWS} columns={[
        { title: "boxing", cell: (e) => e.boxing },
        { title: "per step", number: true, cell: (e) => time(e.ns_per_step) },
        { title: "share", number: true, cell: (e) => percent(e.share) },
        { title: "after it was sent", number: true, cell: (e) => percent(e.share_sent) },
        { title: "waits", number: true, cell: (e) => e.times },
      ]} />
    </section>
  );
}
