// The timeline of all queues, with its keys, its search and what is known of the selected act.

import { Component, h } from "preact";
import { Run } from "./bundle";
import { PHASES, WaitKind, WAITS } from "./colours";
import { actAt, actorRows, placeAfter, QueueDetail } from "./detail";
import { shownUntil } from "./ending";
import { findActors, findAct, Found } from "./find";
import { AXIS_HEIGHT, Row, ROW_HEIGHT, Scene, Theme, TimelineCanvas } from "./timeline_canvas";
import { waitTile } from "./timeline_pixels";
import { Term } from "./ui";
import { bytes, count, time } from "./units";
import { actText, nameOf, queueOfAct, rankAcross, rankOfActor, ViewProps } from "./view";

const ZOOM = 1.25;
const ROWS_MAX = 24; // more scroll

interface Hover {
  act: number;
  name: string; // of the row, if the pointer is there and the name is cut
  x: number;
  y: number;
}

export class Timeline extends Component<ViewProps, { hover: Hover | null; measured: number }> {
  private canvas: HTMLCanvasElement | null = null;
  private painter: TimelineCanvas | null = null;
  private scene: Scene = { from: 0, to: 1, top: 0, colour: "phase", found: null, act: -1, measure: null };
  private drag: { x: number; y: number; from: number; to: number; top: number; measure: boolean; moved: boolean } |
    null = null;
  private frame = 0;
  private rows: Row[] = [];
  private rowsOpen: string | undefined; // the address of these rows
  private found: { text: string; of: Found } | null = null;
  private readonly actorsOf: { [queue: number]: { actor: number; row: QueueDetail }[] } = {}; // of queues that were open
  private readonly onResize = () => this.redraw();

  constructor(props: ViewProps) {
    super(props);
    this.state = { hover: null, measured: 0 };
    this.setRows(props);
  }

  componentDidMount(): void {
    this.canvas!.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    window.addEventListener("resize", this.onResize);
    this.dark.addEventListener("change", this.onColours);
    this.onColours();
  }
  componentWillUnmount(): void {
    window.removeEventListener("resize", this.onResize);
    this.dark.removeEventListener("change", this.onColours);
    window.clearTimeout(this.later);
  }
  private readonly dark = window.matchMedia("(prefers-color-scheme: dark)");
  private readonly onColours = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const theme: Theme = { text: colour("--text"), faint: colour("--faint"), ground: colour("--ground"),
                           line: colour("--line"), accent: colour("--accent"), warning: colour("--warn") };
    this.painter = new TimelineCanvas(this.canvas!, this.props.run, theme);
    this.follow(this.props);
  };
  componentWillReceiveProps(next: ViewProps): void {
    this.setRows(next);
  }
  // The pointer updates this component all the time. Only a new address is to be followed: the search costs time, and a
  // move that is not in the address yet must stay.
  componentDidUpdate(before: ViewProps): void {
    if (before.state !== this.props.state) this.follow(this.props);
  }

  // Takes the part, the selection and the search from the address.
  private follow(props: ViewProps): void {
    const { run, state } = props;
    const [from, to] = this.whole();
    this.scene.from = state.from !== undefined ? state.from : from;
    this.scene.to = state.to !== undefined && state.to > this.scene.from ? state.to : Math.max(to, this.scene.from + 1);
    this.scene.colour = state.colour || "phase";
    const act = state.act !== undefined && state.act < run.columns.act_begin.length ? state.act : -1;
    const found = this.foundOf(props);
    this.scene.found = found === null ? null : found.actors;
    this.painter!.setRows(this.rows);
    if (act >= 0 && act !== this.scene.act) this.bringIntoView(this.painter!.placeOfAct(act));
    this.scene.act = act;
    this.scroll(0);
  }

  // Makes the rows that the address asks for.
  private setRows(props: ViewProps): void {
    const { detail, state } = props;
    if (this.rows.length > 0 && this.rowsOpen === state.open) return;
    this.rowsOpen = state.open;
    const open = openQueues(state.open);
    this.rows = [];
    detail.forEach((of, queue) => {
      const isOpen = open.has(queue);
      this.rows.push({ queue, actor: -1, isOpen, detail: of });
      if (!isOpen) return;
      if (this.actorsOf[queue] === undefined) this.actorsOf[queue] = actorRows(props.run.columns, of);
      for (const { actor, row } of this.actorsOf[queue]) this.rows.push({ queue, actor, isOpen: false, detail: row });
    });
  }
  // Opens or closes the rows of a queue's actors.
  private toggle(queue: number): void {
    const open = openQueues(this.props.state.open);
    if (!open.delete(queue)) open.add(queue);
    this.props.go({ open: Array.from(open).sort((a, b) => a - b).join(",") || undefined, from: this.scene.from,
                    to: this.scene.to });
  }
  private bringIntoView(place: number): void {
    const room = this.canvas!.clientHeight - AXIS_HEIGHT - ROW_HEIGHT;
    if (place * ROW_HEIGHT < this.scene.top) this.scene.top = place * ROW_HEIGHT;
    if (place * ROW_HEIGHT > this.scene.top + room) this.scene.top = place * ROW_HEIGHT - room;
  }

  private foundOf(props: ViewProps): Found | null {
    const text = props.state.find;
    if (!text) return null;
    if (this.found === null || this.found.text !== text) this.found = { text, of: findActors(props.run, text) };
    return this.found.of;
  }
  // Selects the act after (1) or before (-1) the selected one that is looked for; behind the last one follows the first.
  private selectFound(by: 1 | -1): void {
    const found = this.foundOf(this.props);
    if (found === null || found.acts === 0) return;
    this.select(findAct(this.props.run, this.props.detail, found, this.scene.act, this.scene.from, by));
  }

  private whole(): [number, number] {
    return [0, Math.max(1, shownUntil(this.props.run))];
  }

  private redraw(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.painter) this.painter.draw(this.scene);
    });
  }

  private keep(): void {
    this.props.go({ from: this.scene.from, to: this.scene.to });
  }

  private zoom(factor: number, x: number): void {
    const at = this.painter!.nsAt(x, this.scene);
    const [from, to] = this.whole();
    const span = Math.min((to - from) * 1.1, Math.max(50, (this.scene.to - this.scene.from) * factor));
    const share = (at - this.scene.from) / (this.scene.to - this.scene.from);
    this.scene.from = at - share * span;
    this.scene.to = this.scene.from + span;
    this.redraw();
  }
  private pan(share: number): void {
    const by = (this.scene.to - this.scene.from) * share;
    this.scene.from += by;
    this.scene.to += by;
    this.redraw();
  }
  private scroll(pixels: number): void {
    const most = Math.max(0, this.rows.length * ROW_HEIGHT + AXIS_HEIGHT - this.canvas!.clientHeight);
    this.scene.top = Math.max(0, Math.min(most, this.scene.top + pixels));
    this.redraw();
  }

  private onWheel(event: WheelEvent): void {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey || event.altKey) this.zoom(event.deltaY > 0 ? ZOOM : 1 / ZOOM, event.offsetX);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
      this.pan((event.deltaX || event.deltaY) / 800);
    else if (this.rows.length > ROWS_MAX) this.scroll(event.deltaY);
    else this.zoom(event.deltaY > 0 ? ZOOM : 1 / ZOOM, event.offsetX);
    this.keepSoon();
  }
  private later = 0;
  private keepSoon(): void {
    window.clearTimeout(this.later);
    this.later = window.setTimeout(() => this.keep(), 250);
  }

  private onKey(event: KeyboardEvent): void {
    const middle = (this.painter!.namesWidth() + this.canvas!.clientWidth) / 2;
    const act = this.scene.act;
    switch (event.key) {
      case "w": case "+": this.zoom(1 / ZOOM, middle); break;
      case "s": case "-": this.zoom(ZOOM, middle); break;
      case "a": case "ArrowLeft": this.pan(-0.15); break;
      case "d": case "ArrowRight": this.pan(0.15); break;
      case "ArrowUp": this.scroll(-ROW_HEIGHT); break;
      case "ArrowDown": this.scroll(ROW_HEIGHT); break;
      case "f": if (act >= 0) this.showAct(act); break;
      case "0": [this.scene.from, this.scene.to] = this.whole(); this.redraw(); break;
      case ".": this.selectNext(1); return;
      case ",": this.selectNext(-1); return;
      case "c": if (act >= 0 && this.props.run.columns.act_cause[act] >= 0)
        this.select(this.props.run.columns.act_cause[act]);
        return;
      case "o": this.toggle(act >= 0 ? queueOfAct(this.props.run, act) : this.topQueue()); return;
      case "n": this.selectFound(1); return;
      case "N": case "p": this.selectFound(-1); return;
      case "m": if (act >= 0) this.measureAct(act); return;
      case "/": if (this.search) this.search.focus(); event.preventDefault(); return;
      case "Escape": this.endMeasure(); this.props.go({ act: undefined, find: undefined }); return;
      default: return;
    }
    event.preventDefault();
    this.keepSoon();
  }

  // Returns the queue of the row at the top.
  private topQueue(): number {
    const row = this.painter!.rowAt(AXIS_HEIGHT, this.scene);
    return row === undefined ? 0 : row.queue;
  }
  private measureAct(act: number): void {
    const c = this.props.run.columns;
    this.scene.measure = [c.act_begin[act], c.act_begin[act] + c.act_ns[act]];
    this.setState({ measured: c.act_ns[act] });
    this.redraw();
  }
  private endMeasure(): void {
    this.scene.measure = null;
    this.setState({ measured: 0 });
    this.redraw();
  }
  private showAct(act: number): void {
    const c = this.props.run.columns;
    const ns = Math.max(c.act_ns[act], c.act_wait_ns[act]);
    this.scene.from = c.act_begin[act] - 3 * ns;
    this.scene.to = c.act_begin[act] + 4 * ns;
    this.redraw();
  }
  private selectNext(by: number): void {
    const { run, detail } = this.props;
    const act = this.scene.act;
    const row = detail[act < 0 ? this.topQueue() : queueOfAct(run, act)];
    // Nothing is selected: the first act that begins in the part that is shown.
    const next = act < 0 ? row.first + placeAfter(run.columns, row, this.scene.from - 1) : act + by;
    if (row.end > row.first) this.select(Math.max(row.first, Math.min(row.end - 1, next)));
  }
  private select(act: number): void {
    const c = this.props.run.columns;
    const span = this.scene.to - this.scene.from;
    // A move that is not in the address yet goes there, too.
    const change = { act, from: this.scene.from, to: this.scene.to };
    if (c.act_begin[act] < change.from || c.act_begin[act] > change.to) {
      change.from = c.act_begin[act] - span / 2;
      change.to = change.from + span;
    }
    this.props.go(change);
  }

  private actUnder(event: MouseEvent): number {
    const row = this.painter!.rowAt(event.offsetY, this.scene);
    if (event.offsetX < this.painter!.namesWidth() || row === undefined) return -1;
    return actAt(this.props.run.columns, row.detail, this.painter!.nsAt(event.offsetX, this.scene));
  }

  private nameUnder(event: MouseEvent): string {
    const row = this.painter!.rowAt(event.offsetY, this.scene);
    return event.offsetX >= this.painter!.namesWidth() || row === undefined ? "" : this.painter!.cutNameOf(row);
  }

  private onDown(event: MouseEvent): void {
    this.drag = { x: event.offsetX, y: event.offsetY, from: this.scene.from, to: this.scene.to, top: this.scene.top,
                  measure: event.shiftKey, moved: false };
    this.setState({ hover: null }); // it would hide what moves or is measured
  }
  private onMove(event: MouseEvent): void {
    const drag = this.drag;
    if (drag === null) {
      this.setState({ hover: { act: this.actUnder(event), name: this.nameUnder(event), x: event.offsetX,
                               y: event.offsetY } });
      return;
    }
    if (Math.abs(event.offsetX - drag.x) + Math.abs(event.offsetY - drag.y) > 3) drag.moved = true;
    if (drag.measure) {
      this.scene.measure = [this.painter!.nsAt(drag.x, this.scene), this.painter!.nsAt(event.offsetX, this.scene)];
      this.setState({ measured: Math.abs(this.scene.measure[1] - this.scene.measure[0]) });
    } else {
      const width = this.canvas!.clientWidth - this.painter!.namesWidth();
      const by = ((drag.x - event.offsetX) / width) * (drag.to - drag.from);
      this.scene.from = drag.from + by;
      this.scene.to = drag.to + by;
      this.scroll(drag.top + drag.y - event.offsetY - this.scene.top);
    }
    this.redraw();
  }
  private onUp(event: MouseEvent): void {
    const drag = this.drag;
    this.drag = null;
    if (drag !== null && drag.moved) return this.keep();
    if (event.offsetX < this.painter!.namesWidth()) {
      const row = this.painter!.rowAt(event.offsetY, this.scene);
      if (row !== undefined) this.toggle(row.queue);
      return;
    }
    this.endMeasure();
    const act = this.actUnder(event);
    this.props.go({ act: act < 0 ? undefined : act });
  }

  render(): JSX.Element {
    const { run, state } = this.props;
    const rows = Math.min(this.rows.length, ROWS_MAX);
    const hover = this.state.hover;
    return (
      <section>
        <h2>Timeline</h2>
        <div class="controls">
          <label>Look for <input type="search" value={state.find || ""} placeholder="name, * for any text"
            ref={(e) => { this.search = e as HTMLInputElement; }}
            onKeyDown={(e: KeyboardEvent) => {
              const text = (e.target as HTMLInputElement).value;
              if (e.key === "Enter" && text !== "" && text === state.find) this.selectFound(e.shiftKey ? -1 : 1);
            }}
            onChange={(e: Event) =>
              this.props.go({ find: (e.target as HTMLInputElement).value || undefined })} /></label>
          {this.hits()}
          <label>Colour by <select value={state.colour || "phase"}
            onChange={(e: Event) => this.props.go({ colour: (e.target as HTMLSelectElement).value === "micro-batch" ?
              "micro-batch" : undefined })}>
            <option value="phase">phase</option><option value="micro-batch">micro-batch</option></select></label>
          <Steps run={run} pick={this.goToStep} />
          {this.state.measured > 0 && <output>{`measured ${time(this.state.measured)}`}</output>}
        </div>
        <div class="timeline" style={{ height: `${rows * ROW_HEIGHT + AXIS_HEIGHT}px` }}>
          <canvas tabIndex={0} role="application" ref={(c) => { this.canvas = c as HTMLCanvasElement; }}
                  aria-label="Timeline of all devices. Keys: w and s zoom, a and d move, comma and full stop select the act before and after, c selects what it waited for, f shows it, m measures it, o opens the rows of the actors of its queue, slash looks for acts, n and p select the next and the previous one that was found, 0 shows everything, Escape ends the selection, the search and the measurement."
                  onKeyDown={(e: KeyboardEvent) => this.onKey(e)} onMouseDown={(e: MouseEvent) => this.onDown(e)}
                  onMouseMove={(e: MouseEvent) => this.onMove(e)} onMouseUp={(e: MouseEvent) => this.onUp(e)}
                  onMouseLeave={() => { this.drag = null; this.setState({ hover: null }); }} />
          {hover && (hover.act >= 0 || hover.name !== "") && (
            <div class="hover" style={{ left: `${hover.x + 12}px`,
              top: `${hover.y + 14}px` }}>{hover.act >= 0 ? this.about(hover.act) : hover.name}</div>
          )}
        </div>
        <Legend />
        <p class="note">Wheel: zoom{this.rows.length > ROWS_MAX && " with Ctrl, scroll without"}. Drag: move. Shift and drag:
          measure. Click a name: a row for each of its actors. Keys: w, s zoom; a, d move; comma and full stop select; c goes to
          what an act waited for; f shows the selected act; m measures it; o opens the rows of its actors; / looks for acts; n, p
          go to the next and the previous one that was found; 0 shows everything; Escape ends the selection, the search and the
          measurement.</p>
        <p class="note">Where many acts share a pixel, a column is as high as acts fill its time, in the colour of the longest,
          and above it lie the waits by their causes.</p>
        <div aria-live="polite">{this.scene.act >= 0 || state.act !== undefined ? this.selected(state.act!)
          : null}</div>
      </section>
    );
  }

  private search: HTMLInputElement | null = null;
  private readonly goToStep = (text: string) => {
    const step = this.props.run.object.steps.find((s) => String(s.step) === text);
    if (step) this.props.go({ from: step.begin_ns, to: step.end_ns });
  };

  // Tells how many acts were found, and leads from one to the next.
  private hits(): JSX.Element | null {
    const found = this.foundOf(this.props);
    if (found === null) return null;
    const { run, state, detail } = this.props;
    const place = state.act === undefined ? 0 : found.placeOf(run, detail, state.act);
    const all = `${count(found.acts)} ${found.acts === 1 ? "act" : "acts"} of ${count(found.numActors)} ` +
      `${found.numActors === 1 ? "actor" : "actors"}`;
    return (
      <span class="hits">
        <output>{found.acts === 0 ? "no act has such a name" : place > 0 ? `${count(place)} of ${all}` : all}</output>{" "}
        <button onClick={() => this.selectFound(-1)} disabled={found.acts === 0}>Previous</button>{" "}
        <button onClick={() => this.selectFound(1)} disabled={found.acts === 0}>Next</button>
      </span>
    );
  }

  // Returns sentences about an act: what it waited for, and who held it.
  private waitText(act: number): string {
    const { run } = this.props;
    const c = run.columns;
    if (c.act_wait[act] === 0) return "It waited for nothing.";
    const name = nameOf(run, "register_name", c.act_waited_register[act]);
    const cause = c.act_cause[act];
    const holder = cause < 0 ? "an act that the trace does not hold" :
      `${actText(run, cause)} on rank ${rankAcross(run, c.act_waited_register[act], c.act_actor[cause],
                                                   rankOfActor(run, c.act_actor[act]))}`;
    return c.act_wait[act] === 1 ?
      `Before it, the device waited ${time(c.act_wait_ns[act])} for a token of ${name}, from ${holder}.` :
      `Before it, the device waited ${time(c.act_wait_ns[act])} for a free slot of ${name}, held by ${holder}.`;
  }

  private about(act: number): JSX.Element {
    const c = this.props.run.columns;
    return (
      <div>
        <b>{actText(this.props.run, act)}</b>
        <div>{nameOf(this.props.run, "actor_phase", c.act_actor[act])}, {time(c.act_ns[act])}</div>
        <div>{this.waitText(act)}</div>
      </div>
    );
  }

  private selected(act: number): JSX.Element | null {
    const { run, go } = this.props;
    const c = run.columns;
    if (!(act >= 0 && act < c.act_begin.length)) return null;
    const planned = c.actor_planned_ns[c.act_actor[act]];
    const register = c.act_waited_register[act];
    return (
      <div class="card">
        <h3>{actText(run, act)}</h3>
        <p>
          <Term word="act">Act</Term> on {run.object.queues[queueOfAct(run, act)].name}, phase{" "}
          {nameOf(run, "actor_phase", c.act_actor[act])}: {time(c.act_ns[act])}
          {planned > 0 && `, planned ${time(planned)}`}, from {time(c.act_begin[act])} on.{" "}
          {this.waitText(act)}
        </p>
        <p>
          {c.act_cause[act] >= 0 && <button onClick={() => this.select(c.act_cause[act])}>Go to what it waited
            for</button>}{" "}
          {register >= 0 && <button onClick={() => go({ view: "registers", register })}>
            {`Show the register (${bytes(c.register_bytes[register])} a slot)`}</button>}{" "}
          <button onClick={() => this.toggle(queueOfAct(run, act))}>
            {openQueues(this.props.state.open).has(queueOfAct(run, act)) ? "Close the rows of its actors" :
              "Open a row for each actor"}</button>
        </p>
      </div>
    );
  }
}

function openQueues(open: string | undefined): Set<number> {
  return new Set(open === undefined ? [] : open.split(",").map(Number));
}

// The list of steps of a long run is long, and the pointer updates the timeline all the time.
class Steps extends Component<{ run: Run; pick: (step: string) => void }, {}> {
  shouldComponentUpdate(next: { run: Run }): boolean {
    return next.run !== this.props.run;
  }
  render(): JSX.Element {
    return (
      <label>Step <select value="" onChange={(e: Event) => this.props.pick((e.target as HTMLSelectElement).value)}>
        <option value="">…</option>
        {this.props.run.object.steps.map((s) =>
          <option value={String(s.step)}>{`${s.step}: ${time(s.end_ns - s.begin_ns)}`}</option>)}
      </select></label>
    );
  }
}

let waitPictures: { [kind: string]: string } | undefined; // made once

function Legend(): JSX.Element {
  if (waitPictures === undefined) {
    waitPictures = {};
    for (const kind of Object.keys(WAITS) as WaitKind[]) waitPictures[kind] = `url(${waitTile(kind).toDataURL()})`;
  }
  const pictures = waitPictures;
  return (
    <ul class="legend" aria-label="Colours and patterns">
      {Object.keys(PHASES).map((phase) => <li><span class="key" style={{ background: PHASES[phase] }} />{phase}</li>)}
      {(Object.keys(WAITS) as WaitKind[]).map((kind) => (
        <li><span class="key" style={{ backgroundImage: pictures[kind] }} />{WAITS[kind].name}</li>
      ))}
    </ul>
  );
}
