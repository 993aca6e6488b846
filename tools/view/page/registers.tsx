// Registers: the slots in use over time beside those granted, who holds them, and what could be given back.

import { h } from "preact";
import { Run } from "./bundle";
import { Table, Term } from "./ui";
import { bytes, percent, time } from "./units";
import { nameOf, rankAcross, rankOfActor, ViewProps } from "./view";

const ROWS = 40;
const WIDTH = 900;
const HEIGHT = 120;
const GAIN_MIN = 0.03; // of a step
const ALWAYS_MIN = 0.8; // of the whole steps, of a register that is nearly always full

interface Row {
  register: number;
  name: string;
  rank: string;
  slots: number;
  most: number;
  writer: string; // the phase of the actor that writes it
  bytes: number; // of all slots
  spare_bytes: number;
  full: number; // share of the whole steps
  credit_ns: number; // of a step
}

// Returns the rank of the first reader of a register; -1: it has none.
function readerOf(run: Run, register: number): number {
  const c = run.columns;
  const first = c.register_first_consumer[register];
  return first < c.register_first_consumer[register + 1] ? rankOfActor(run, c.consumer_actor[first]) : -1;
}

function rowsOf(run: Run): Row[] {
  const c = run.columns;
  const steps = run.object.steps;
  const all = steps.reduce((sum, s) => sum + s.end_ns - s.begin_ns, 0) || 1;
  const rows: Row[] = [];
  for (let r = 0; r < c.register_name.length; ++r) {
    const producer = c.register_producer[r];
    rows.push({
      register: r,
      name: nameOf(run, "register_name", r),
      rank: producer < 0 ? "" : String(rankAcross(run, r, producer, readerOf(run, r))),
      slots: c.register_slots[r],
      most: c.register_most[r],
      writer: producer < 0 ? "" : nameOf(run, "actor_phase", producer),
      bytes: c.register_slots[r] * c.register_bytes[r],
      spare_bytes: (c.register_slots[r] - c.register_most[r]) * c.register_bytes[r],
      full: c.register_full_ns[r] / all,
      credit_ns: c.register_waited_credit_ns[r] / Math.max(1, steps.length),
    });
  }
  return rows;
}

function Fill({ run, register }: { run: Run; register: number }): JSX.Element {
  const c = run.columns;
  const first = c.register_first_change[register];
  const end = c.register_first_change[register + 1];
  const slots = c.register_slots[register];
  const steps = run.object.steps;
  const from = steps[0].begin_ns;
  const to = steps[steps.length - 1].end_ns;
  const x = (ns: number) => ((ns - from) / (to - from)) * WIDTH;
  const y = (n: number) => HEIGHT - (n / Math.max(1, slots)) * (HEIGHT - 10);
  let line = "";
  for (let i = first; i < end; ++i) {
    const at = x(c.change_at[i]).toFixed(1);
    line += i === first ? `M${at},${y(c.change_in_use[i]).toFixed(1)}` : `H${at}V${y(c.change_in_use[i]).toFixed(1)}`;
  }
  line += `H${WIDTH}`;
  const consumers: string[] = [];
  for (let i = c.register_first_consumer[register]; i < c.register_first_consumer[register + 1]; ++i) {
    consumers.push(`${nameOf(run, "actor_name", c.consumer_actor[i])} on rank ${rankOfActor(run, c.consumer_actor[i])}`);
  }
  const producer = c.register_producer[register];
  const name = nameOf(run, "register_name", register);
  return (
    <figure>
      <figcaption>
        <b>{name}</b>: {slots} <Term word="slot">{slots === 1 ? "slot" : "slots"}</Term> of {bytes(c.register_bytes[register])}, at most{" "}
        {c.register_most[register]} in use.{" "}
        {producer >= 0 &&
          `${nameOf(run, "actor_name", producer)} on rank ${rankAcross(run, register, producer, readerOf(run, register))} writes it; `}
        {consumers.length > 0 && (consumers.length === 1 ? `${consumers[0]} reads it and holds its slots.` :
          `${consumers.join(", ")} read it and hold its slots.`)}{" "}
        The line is the number of slots in use, the dashed line the number granted; steps begin at the vertical lines.
      </figcaption>
      <div class="axes">
      <ul class="scale" aria-hidden="true"><li>{slots}</li><li>0</li></ul>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 4}`} preserveAspectRatio="none" role="img"
           aria-label={`slots of ${name} in use over time, at most ${c.register_most[register]} of ${slots}`}>
        {steps.map((s) => <line x1={x(s.begin_ns)} x2={x(s.begin_ns)} y1={0} y2={HEIGHT} class="border" />)}
        <line x1={0} x2={WIDTH} y1={y(slots)} y2={y(slots)} class="granted" />
        <path d={line} class="fill" />
      </svg>
      </div>
      <div class="scale-x" aria-hidden="true"><span>{time(from)}</span><span>{time(to)}</span></div>
    </figure>
  );
}

// What the best change of slots would gain, if it is worth a word.
export function SlotGain({ run }: { run: Run }): JSX.Element | null {
  const why = run.object.report.why_slow;
  const rows = why === undefined ? [] : why.what_if.filter((row) => row.finished && row.change.startsWith("slots:"));
  const best = rows.sort((a, b) => (b.gain || 0) - (a.gain || 0))[0];
  if (best === undefined || (best.gain || 0) < GAIN_MIN) return null;
  return (
    <p>
      A <Term word="replay" /> with {best.about} saves {percent(best.gain || 0)} of a step. A wait is named after the
      event that ended it, so waits for <Term word="slot">slots</Term> may show as waits for input.
    </p>
  );
}

export function Registers({ run, state, go }: ViewProps): JSX.Element {
  const rows = rowsOf(run);
  const pick = (row: Row) => <button class="link" onClick={() => go({ register: row.register })}>{row.name}</button>;
  const spare = rows.filter((r) => r.spare_bytes > 0).sort((a, b) => b.spare_bytes - a.spare_bytes);
  const full = rows.filter((r) => r.credit_ns > 0).sort((a, b) => b.credit_ns - a.credit_ns);
  const largest = rows.slice().sort((a, b) => b.bytes - a.bytes);
  const always = rows.filter((r) => r.full >= ALWAYS_MIN).sort((a, b) => b.credit_ns - a.credit_ns || b.bytes - a.bytes);
  const register = state.register !== undefined && state.register < rows.length ? state.register :
    (full[0] || largest[0] || { register: -1 }).register;
  return (
    <section>
      <h2><Term word="register">Registers</Term></h2>
      <SlotGain run={run} />
      {register >= 0 && <Fill run={run} register={register} />}
      <Table name="Actors waited for a free slot: these hold others up" rows={full} most={ROWS} columns={[
        { title: "register", cell: pick },
        { title: "rank", number: true, cell: (r) => r.rank },
        { title: "slots", number: true, cell: (r) => r.slots },
        { title: "all in use", number: true, cell: (r) => percent(r.full) },
        { title: "waits per step", number: true, cell: (r) => time(r.credit_ns) },
      ]} />
      <Table name={`Nearly always full: all slots in use for ${percent(ALWAYS_MIN)} of the steps or more`} rows={always}
        most={ROWS} columns={[
        { title: "register", cell: pick },
        { title: "rank", number: true, cell: (r) => r.rank },
        { title: "slots", number: true, cell: (r) => r.slots },
        { title: "all in use", number: true, cell: (r) => percent(r.full) },
        { title: "bytes", number: true, cell: (r) => bytes(r.bytes) },
        { title: "one more slot takes", number: true, cell: (r) => bytes(bytesOf(run, r)) },
        { title: "written by", cell: (r) => r.writer },
        { title: "writers wait per step", number: true, cell: (r) => r.credit_ns > 0 ? time(r.credit_ns) : "never" },
      ]} />
      {always.length > 0 && <p class="note">Weights, which acts of the phase update write, and sums of gradients are in use
        for most of a step in any run, and a weight cannot have more slots. Look at the other rows first.</p>}
      <Table name="Never all in use: memory to give back" rows={spare} most={ROWS} columns={[
        { title: "register", cell: pick },
        { title: "rank", number: true, cell: (r) => r.rank },
        { title: "most in use", number: true, cell: (r) => `${r.most} of ${r.slots}` },
        { title: "never used", number: true, cell: (r) => bytes(r.spare_bytes) },
      ]} />
      <Table name="Largest" rows={largest} most={ROWS} columns={[
        { title: "register", cell: pick },
        { title: "rank", number: true, cell: (r) => r.rank },
        { title: "slots", number: true, cell: (r) => `${r.most} of ${r.slots}` },
        { title: "bytes", number: true, cell: (r) => bytes(r.bytes) },
      ]} />
    </section>
  );
}

function bytesOf(run: Run, row: Row): number {
  return run.columns.register_bytes[row.register];
}
