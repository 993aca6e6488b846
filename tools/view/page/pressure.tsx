// Back-pressure: the actors as a graph, with the time that each is busy, starved and blocked.

import { h } from "preact";
import { BackPressure, PressureEdge, PressureNode } from "./bundle";
import { SlotGain } from "./registers";
import { Table, Term } from "./ui";
import { bytes, percent, time } from "./units";
import { ViewProps } from "./view";

const ROW = 92; // pixels
const RADIUS = 20;
const STROKE = 11; // of a ring
const COLUMN_MIN = 250;
const WIDTH_MIN = 1100;
const ROWS = 30;
const WIDE = 7; // pixels: the edge with most bytes

// The states of an actor, clockwise from the top of a ring. Their arcs differ in dashes, too.
const STATES: { key: "busy" | "starved" | "blocked" | "ready"; colour: string; dash: string }[] = [
  { key: "busy", colour: "#0072b2", dash: "" },
  { key: "starved", colour: "#b9b9b9", dash: "2 1.5" },
  { key: "blocked", colour: "#d55e00", dash: "5 1.5" },
  { key: "ready", colour: "#f0c066", dash: "1 1" },
];

function told(node: PressureNode): string {
  return STATES.map((s) => `${s.key} ${percent(node[s.key])}`).join(", ");
}

// Returns points on a circle from `from` to `to`, shares of a turn that begins at the top.
function arc(x: number, y: number, from: number, to: number): string {
  const end = Math.min(to, from + 0.99999); // a whole turn would end where it began
  const point = (share: number) => {
    const angle = share * 2 * Math.PI;
    return `${(x + RADIUS * Math.sin(angle)).toFixed(2)},${(y - RADIUS * Math.cos(angle)).toFixed(2)}`;
  };
  return `M${point(from)}A${RADIUS},${RADIUS} 0 ${end - from > 0.5 ? 1 : 0} 1 ${point(end)}`;
}

function Ring({ node, x, y }: { node: PressureNode; x: number; y: number }): JSX.Element {
  let from = 0;
  const arcs = STATES.map((state) => {
    const begin = from;
    from += node[state.key];
    if (node[state.key] < 0.002) return null;
    return <path d={arc(x, y, begin, from)} class="ring"
                 style={{ stroke: state.colour, strokeWidth: `${STROKE}`, strokeDasharray: state.dash || "none" }} />;
  });
  return <g><circle cx={x} cy={y} r={RADIUS} class="ground" style={{ strokeWidth: `${STROKE + 2}` }} />{arcs}</g>;
}

function Graph({ pressure, picked, pick }: {
  pressure: BackPressure; picked: number; pick: (node: number) => void }): JSX.Element {
  const { nodes, edges, chain } = pressure;
  const perRow: number[] = [];
  for (const node of nodes) perRow[node.row] = Math.max(perRow[node.row] || 0, node.column + 1);
  const width = Math.max(WIDTH_MIN, perRow.reduce((most, n) => Math.max(most, n), 1) * COLUMN_MIN);
  const x = (node: PressureNode) => ((node.column + 0.5) / perRow[node.row]) * width - 70;
  const y = (node: PressureNode) => node.row * ROW + ROW / 2;
  const most = edges.reduce((sum, e) => Math.max(sum, e.bytes_per_step), 1);
  const wide = (e: PressureEdge) => 1 + (WIDE - 1) * Math.sqrt(e.bytes_per_step / most);
  const line = (e: PressureEdge) => {
    const [a, b] = [nodes[e.from], nodes[e.to]];
    const down = b.row > a.row ? 1 : -1;
    const [fromY, toY] = [y(a) + down * (RADIUS + 6), y(b) - down * (RADIUS + 9)];
    const aside = Math.abs(b.row - a.row) > 1 ? 60 + 14 * Math.abs(b.row - a.row) : 0; // passes the rings between
    const bend = down * ROW * 0.45;
    return `M${x(a)},${fromY}C${x(a) - aside},${fromY + bend} ${x(b) - aside},${toY - bend} ${x(b)},${toY}`;
  };
  // What is picked lies on top.
  const order = edges.map((_, i) => i).filter((i) => edges[i].from !== edges[i].to);
  const near = (i: number) => picked >= 0 && (edges[i].from === picked || edges[i].to === picked);
  order.sort((a, b) => Number(near(a) || chain.includes(a)) - Number(near(b) || chain.includes(b)));
  return (
    <div class="graph" role="region" aria-label="Graph of actors" tabIndex={0}>
      <svg class="plain" width={width} height={perRow.length * ROW}
        style={{ width: `${width}px`, height: `${perRow.length * ROW}px` }}>
        <defs>
          <marker id="head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="9" markerHeight="9"
            markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0,0L8,4L0,8z" class="head" /></marker>
        </defs>
        {order.map((i) => {
          const e = edges[i];
          const kind = chain.includes(i) ? "held" : e.slots_in_use > 0.9 ? "full" : e.slots_in_use > 0.5 ? "half" : "";
          return (
            <path d={line(e)} class={`flow ${kind} ${e.lags ? "lags" : ""} ${picked >= 0 && !near(i) ? "dim" : ""}`}
                  marker-end="url(#head)" style={{ strokeWidth: wide(e).toFixed(1) }}>
              <title>{`${nodes[e.from].name} to ${nodes[e.to].name}: ${bytes(e.bytes_per_step)} a step, ` +
                      `${percent(e.slots_in_use)} of the slots in use, ${e.worst}`}</title>
            </path>
          );
        })}
        {nodes.map((node, n) => (
          <g class={`node ${n === picked ? "picked" : ""}`} tabIndex={0} role="button" aria-pressed={n === picked}
             aria-label={`${node.name}, ${node.phase}: ${told(node)}`} onClick={() => pick(n)}
             onKeyDown={(e: KeyboardEvent) =>
               { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); pick(n); } }}>
            <title>{`${node.name}, ${node.phase}, ${node.actors} actors: ${told(node)}`}</title>
            <Ring node={node} x={x(node)} y={y(node)} />
            <text x={x(node) + RADIUS + 12} y={y(node) - 8} class="name">{short(node.name)}</text>
            <text x={x(node) + RADIUS + 12} y={y(node) + 8}>{node.phase}</text>
            <text x={x(node) + RADIUS + 12} y={y(node) + 23}>
              {`busy ${percent(node.busy)}${node.blocked >= 0.001 ? `, blocked ${percent(node.blocked)}` : ""}`}</text>
          </g>
        ))}
      </svg>
    </div>
  );
}

function short(name: string): string {
  return name.length > 28 ? `${name.slice(0, 27)}…` : name;
}

export function Pressure({ run, state, go }: ViewProps): JSX.Element {
  const why = run.object.report.why_slow;
  if (why === undefined) return <section><h2>Back-pressure</h2><p>{run.object.report.why_slow_error}</p></section>;
  const pressure = why.back_pressure;
  const { nodes, chain } = pressure;
  const picked = state.node !== undefined && state.node >= 0 && state.node < nodes.length ? state.node : -1;
  const pick = (node: number) => go({ node: node === picked ? undefined : node });
  const edges = pressure.edges.map((edge, i) => ({ edge, i }))
    .filter(({ edge }) => picked < 0 || edge.from === picked || edge.to === picked);
  // Of a register that holds several tensors, the first stands for all.
  const onTimeline = (name: string) => (
    <button class="link" title={name} onClick={() => go({ view: "timeline", find: name })}>{name.replace(/, .*/,
      " …")}</button>);
  return (
    <section>
      <h2><Term word="back-pressure">Back-pressure</Term></h2>
      <p class="advice">{pressure.text}.</p>
      <SlotGain run={run} />
      <p>
        A ring shows how an <Term word="actor" /> spends its time,
        clockwise from the top: busy, <Term word="starved" />,{" "}
        <Term word="blocked" />, <Term word="ready" />. Actors of the same function in all layers and on all ranks are
        one ring: busy while any of them on a rank acts, else blocked while one is, and so on. The wider an edge,
        the more bytes it carries.
      </p>
      <ul class="legend" aria-label="Colours and lines">
        {STATES.map((s) => (
          <li><svg class="plain" width="34" height="14" style={{ width: "34px", height: "14px" }}>
            <line x1="0" x2="34" y1="7" y2="7" style={{ stroke: s.colour, strokeWidth: "11", strokeDasharray: s.dash ||
              "none" }} />
          </svg> {s.key}</li>))}
        {[["", "up to 50 % of the slots in use"], ["half", "up to 90 %"], ["full", "more"],
          ["lags", "tokens of earlier steps"],
          ["held", "holds its writers up"]].map(([kind, text]) => (
          <li><svg class="plain" width="34" height="14" style={{ width: "34px", height: "14px" }}>
            <path d="M0,7L34,7" class={`flow ${kind}`} style={{ strokeWidth: "3" }} /></svg> {text}</li>))}
      </ul>
      <Graph pressure={pressure} picked={picked} pick={pick} />
      <Table name={picked < 0 ? "Registers between actors"
        : `Registers of ${nodes[picked].name}, ${nodes[picked].phase}`} rows={edges} most={ROWS}
             columns={[
        { title: "from", cell: (r) => `${nodes[r.edge.from].name}, ${nodes[r.edge.from].phase}` },
        { title: "to", cell: (r) => `${nodes[r.edge.to].name}, ${nodes[r.edge.to].phase}` },
        { title: "register", cell: (r) => (
          <span>{onTimeline(r.edge.worst)}{r.edge.registers > 1 && ` and ${r.edge.registers - 1} more`}
            {chain.includes(r.i) && <b> {r.i === chain[chain.length - 1] ? "the culprit"
              : "held up in turn"}</b>}</span>) },
        { title: "bytes per step", number: true, cell: (r) => bytes(r.edge.bytes_per_step) },
        { title: "slots in use", number: true, cell: (r) => percent(r.edge.slots_in_use) },
        { title: "all in use", number: true, cell: (r) => percent(r.edge.full) },
        { title: "readers starve, sum", number: true, cell: (r) => time(r.edge.starved_ns_per_step) },
        { title: "writers blocked, sum", number: true, cell: (r) => time(r.edge.blocked_ns_per_step) },
        { title: "of that, device idle", number: true, cell: (r) => time(r.edge.held_up_ns_per_step) },
      ]} />
      <Table name="How the actors of a function spend their time"
        rows={nodes.map((node, n) => ({ node, n }))} columns={[
        { title: "function", cell: (r) => <button class="link" aria-pressed={r.n === picked} onClick={() =>
          pick(r.n)}>{r.node.name}</button> },
        { title: "phase", cell: (r) => r.node.phase },
        { title: "actors", number: true, cell: (r) => r.node.actors },
        { title: "ranks", number: true, cell: (r) => r.node.ranks.length },
        { title: "busy", number: true, cell: (r) => percent(r.node.busy) },
        { title: "starved", number: true, cell: (r) => percent(r.node.starved) },
        { title: "blocked", number: true, cell: (r) => percent(r.node.blocked) },
        { title: "ready", number: true, cell: (r) => percent(r.node.ready) },
        { title: "work per step", number: true, cell: (r) => time(r.node.busy_ns_per_step) },
      ]} />
    </section>
  );
}
