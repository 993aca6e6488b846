// Views that are tables of the report: waits, devices, transfers.

import { h } from "preact";
import { Bar, Table, Term } from "./ui";
import { bytes, count, percent, rate, time } from "./units";
import { ViewProps } from "./view";

const ROWS = 60;

export function Devices({ run }: ViewProps): JSX.Element {
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
        { title: "between acts", number: true, cell: (d) => percent(d.between_acts) },
        { title: "had a core", number: true, cell: (d) => d.core_share === undefined ? "" : percent(d.core_share) },
      ]} />
      <Table name="The longest waits" rows={report.waits} most={ROWS} columns={[
        { title: "rank", number: true, cell: (w) => w.rank },
        { title: "share", number: true, cell: (w) => percent(w.share) },
        { title: "total", number: true, cell: (w) => time(w.total_ns) },
        { title: "times", number: true, cell: (w) => w.times },
        { title: "for", cell: (w) => w.for === "input" ? "a token of" : "a free slot of" },
        { title: "register", cell: (w) => w.register },
        { title: "held by", cell: (w) => w.holder },
      ]} />
    </section>
  );
}

export function Transfers({ run, go }: ViewProps): JSX.Element {
  const report = run.object.report;
  const rows = report.why_slow === undefined ? [] : report.why_slow.transfers;
  return (
    <section>
      <h2><Term word="boxing">Boxings</Term> and transfers</h2>
      <p>
        Devices waited for tokens of these transfers and had nothing else to do. After the token was sent the wait is
        communication; before, the sender was one of the <Term word="late ranks" />. The speed is that of the messages which were waited for:
        the record does not show how long others took. The plan's speed is that of the same messages, by the costs that the plan was made
        with.
      </p>
      <Table name="Boxings of all layers, longest waits first" rows={rows} most={ROWS} columns={[
        { title: "boxing", cell: (t) => <button class="link" onClick={() => go({ view: "timeline", find: t.name })}>{t.name}</button> },
        { title: "bytes per step", number: true, cell: (t) => bytes(t.bytes_per_step) },
        { title: "messages", number: true, cell: (t) => count(t.messages_per_step) },
        { title: "links", number: true, cell: (t) => t.links },
        { title: "waits while under way", number: true, cell: (t) => time(t.under_way_ns_per_step) },
        { title: "before it was sent", number: true, cell: (t) => time(t.late_ns_per_step) },
        { title: "a message takes", number: true, cell: (t) => t.way_ns === undefined ? "" : time(t.way_ns) },
        { title: "planned", number: true, cell: (t) => t.planned_way_ns === undefined ? "" : time(t.planned_way_ns) },
        { title: "speed", number: true, cell: (t) => t.bytes_per_second === undefined ? "" : rate(t.bytes_per_second) },
        { title: "planned", number: true, cell: (t) => t.planned_bytes_per_second === undefined ? "" : rate(t.planned_bytes_per_second) },
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
