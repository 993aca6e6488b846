// Draws the timeline on a canvas: a row for each queue, acts in the colour of their phase, waits in a pattern of their
// cause, the borders of steps, and arrows to the selected act from what ended its wait.

import { Failure, Run } from "./bundle";
import { microBatchColour, phaseColour, WaitKind, WAITS } from "./colours";
import { levelFor, QueueDetail } from "./detail";
import { firstAbove } from "./bundle";
import { nameOf, queueOfAct } from "./view";

export const ROW_HEIGHT = 26;
export const AXIS_HEIGHT = 22;
const NAMES_WIDTH_MAX = 260;
const NAMES_SHARE_MAX = 0.4; // of the width
const TICK_WIDTH_MIN = 90; // pixels, of a time with its unit
const PAD = 3;
const TEXT_MIN = 34; // pixels
const SHORTEST_CUT = 16; // signs of a text of which less would say nothing
const FAINT = 0.25; // the least opacity of a bucket that is mostly idle

function failureText(failure: Failure): string {
  return `✖ ${failure.text}`;
}

export interface Scene {
  from: number; // ns
  to: number;
  top: number; // pixels of rows that are scrolled away
  colour: "phase" | "micro-batch";
  found: Uint8Array | null; // by actor: 1 if it is looked for; null: nothing is looked for
  act: number; // selected; -1: none
  measure: [number, number] | null; // ns
}

export interface Theme {
  text: string;
  faint: string;
  ground: string;
  line: string;
  accent: string;
  warning: string;
}

export class TimelineCanvas {
  private readonly colours: string[]; // by actor
  private readonly patterns: { [kind in WaitKind]: CanvasPattern | string };

  constructor(private readonly canvas: HTMLCanvasElement, private readonly run: Run,
              private readonly detail: QueueDetail[], private readonly theme: Theme) {
    const phases = run.columns.actor_phase;
    this.colours = Array.from(phases, (_, actor) => phaseColour(nameOf(run, "actor_phase", actor)));
    const context = canvas.getContext("2d")!;
    this.patterns = { late: "", way: "", own: "", credit: "" };
    for (const kind of Object.keys(WAITS) as WaitKind[]) {
      this.patterns[kind] = context.createPattern(waitTile(kind), "repeat") || WAITS[kind].colour;
    }
  }

  // Returns the moment at a horizontal place of the canvas, and the place of a moment.
  nsAt(x: number, scene: Scene): number {
    return scene.from + ((x - this.namesWidth()) / this.width()) * (scene.to - scene.from);
  }
  xAt(ns: number, scene: Scene): number {
    return this.namesWidth() + ((ns - scene.from) / (scene.to - scene.from)) * this.width();
  }
  queueAt(y: number, scene: Scene): number {
    return Math.floor((y - AXIS_HEIGHT + scene.top) / ROW_HEIGHT);
  }
  // Returns the width of the names of queues, left of the acts. A narrow window cuts names.
  namesWidth(): number {
    return Math.min(NAMES_WIDTH_MAX, Math.round(NAMES_SHARE_MAX * this.canvas.clientWidth));
  }
  private width(): number {
    return Math.max(1, this.canvas.clientWidth - this.namesWidth());
  }

  draw(scene: Scene): void {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    if (this.canvas.width !== width * ratio || this.canvas.height !== height * ratio) {
      this.canvas.width = width * ratio;
      this.canvas.height = height * ratio;
    }
    const g = this.canvas.getContext("2d")!;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = this.theme.ground;
    g.fillRect(0, 0, width, height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    const first = Math.max(0, Math.floor(scene.top / ROW_HEIGHT));
    const last = Math.min(this.detail.length - 1, this.queueAt(height, scene));
    g.save();
    g.beginPath();
    g.rect(this.namesWidth(), AXIS_HEIGHT, width - this.namesWidth(), height - AXIS_HEIGHT);
    g.clip();
    for (let q = first; q <= last; ++q) this.drawQueue(g, q, scene);
    this.drawOpenActs(g, scene);
    this.drawFailures(g, height, scene);
    this.drawSteps(g, height, scene);
    if (scene.act >= 0) this.drawCauses(g, scene);
    if (scene.measure) this.drawMeasure(g, height, scene);
    g.restore();
    this.drawNames(g, first, last, scene);
    this.drawAxis(g, width, scene);
  }

  private rowTop(queue: number, scene: Scene): number {
    return AXIS_HEIGHT + queue * ROW_HEIGHT - scene.top;
  }

  private drawQueue(g: CanvasRenderingContext2D, q: number, scene: Scene): void {
    const queue = this.detail[q];
    const pixel = (scene.to - scene.from) / Math.max(1, this.width());
    const level = levelFor(this.run.columns, queue, pixel);
    const y = this.rowTop(q, scene) + PAD;
    const height = ROW_HEIGHT - 2 * PAD;
    const c = this.run.columns;
    if (level !== undefined) {
      const count = level.begin.length;
      let i = Math.max(0, firstAbove(level.begin, scene.from, 0, count) - 1);
      for (; i < count && level.begin[i] < scene.to; ++i) {
        const x = this.xAt(level.begin[i], scene);
        const end = this.xAt(level.end[i], scene);
        const share = level.busy[i] / Math.max(1, level.end[i] - level.begin[i]);
        g.globalAlpha = Math.max(FAINT, Math.min(1, share));
        g.fillStyle = this.colourOf(level.actor[i], -1, scene);
        g.fillRect(x, y, Math.max(1, end - x), height);
      }
      g.globalAlpha = 1;
      return;
    }
    let act = Math.max(queue.first, firstAbove(c.act_begin, scene.from, queue.first, queue.end) - 1);
    for (; act < queue.end; ++act) {
      const begin = c.act_begin[act];
      if (begin - c.act_wait_ns[act] > scene.to) break;
      if (c.act_wait[act] !== 0) this.drawWait(g, act, y, height, scene);
      if (begin > scene.to) break;
      const x = this.xAt(begin, scene);
      const w = Math.max(0.75, (c.act_ns[act] / (scene.to - scene.from)) * this.width());
      g.fillStyle = this.colourOf(c.act_actor[act], act, scene);
      g.fillRect(x, y, w, height);
      if (act === scene.act) {
        g.strokeStyle = this.theme.accent;
        g.lineWidth = 2;
        g.strokeRect(x - 1, y - 1, w + 2, height + 2);
      }
      if (w > TEXT_MIN) this.drawText(g, nameOf(this.run, "actor_function", c.act_actor[act]), x, y, w, height);
    }
  }

  // Draws where a process or the job failed: a line through the row of the rank, or through all rows.
  private drawFailures(g: CanvasRenderingContext2D, bottom: number, scene: Scene): void {
    for (const failure of this.run.object.failures || []) {
      const x = this.xAt(failure.at_ns, scene);
      if (x < this.namesWidth() || x > this.canvas.clientWidth) continue;
      const top = failure.queue === undefined ? AXIS_HEIGHT : this.rowTop(failure.queue, scene);
      const height = failure.queue === undefined ? bottom - AXIS_HEIGHT : ROW_HEIGHT;
      g.fillStyle = this.theme.warning;
      g.fillRect(x - 1.5, top, 3, height);
      const left = this.failureTextAt(g, failure, x);
      g.fillRect(left, top + PAD, this.failureWidth(g, failure), ROW_HEIGHT - 2 * PAD);
      g.fillStyle = this.theme.ground;
      g.fillText(failureText(failure), left + 4, top + ROW_HEIGHT / 2);
    }
  }

  private failureWidth(g: CanvasRenderingContext2D, failure: Failure): number {
    return g.measureText(failureText(failure)).width + 8;
  }

  // Returns where the text of a failure at x begins: right of its line, where it hides no act, if it fits there.
  private failureTextAt(g: CanvasRenderingContext2D, failure: Failure, x: number): number {
    const width = this.failureWidth(g, failure);
    return x + width <= this.canvas.clientWidth ? x : x - width;
  }

  // Draws the acts and waits that were open when the record ended. They have no end.
  private drawOpenActs(g: CanvasRenderingContext2D, scene: Scene): void {
    const height = ROW_HEIGHT - 2 * PAD;
    for (const act of this.run.object.open_acts || []) {
      const y = this.rowTop(act.queue, scene) + PAD;
      if (act.waits) this.fillWait(g, "late", act.since_ns, Math.max(scene.to, act.since_ns), y, height, scene);
      // The mark of a failure in this row lies left of the text.
      const failure = (this.run.object.failures || []).find((of) => of.queue === act.queue);
      let x = this.xAt(act.since_ns, scene);
      if (failure !== undefined) {
        const line = this.xAt(failure.at_ns, scene);
        x = Math.max(x, line, this.failureTextAt(g, failure, line) + this.failureWidth(g, failure));
      }
      x = Math.max(x, this.namesWidth());
      // The text has a ground of its own, because a pattern of lines behind it strikes it through.
      const text = this.fitted(g, `⚠ ${act.text}`, this.canvas.clientWidth - x - 8);
      g.fillStyle = this.theme.ground;
      g.fillRect(x + 2, y, g.measureText(text).width + 4, height);
      g.fillStyle = this.theme.text;
      g.fillText(text, x + 4, y + height / 2);
    }
  }

  // Returns as much of a text as a width holds, with an ellipsis where it is cut, or its first sign if little fits.
  private fitted(g: CanvasRenderingContext2D, text: string, width: number): string {
    if (g.measureText(text).width <= width) return text;
    let length = text.length - 1;
    while (length >= SHORTEST_CUT && g.measureText(text.slice(0, length) + "…").width > width) --length;
    return length >= SHORTEST_CUT ? text.slice(0, length) + "…" : text.slice(0, 1);
  }

  // A wait lies before its act. Its part until the token was sent is one cause, and its part after that another.
  private drawWait(g: CanvasRenderingContext2D, act: number, y: number, height: number, scene: Scene): void {
    const c = this.run.columns;
    const end = c.act_begin[act];
    const begin = end - c.act_wait_ns[act];
    if (c.act_wait[act] === 2) return this.fillWait(g, "credit", begin, end, y, height, scene);
    const waited = c.act_waited_register[act];
    if (waited >= 0 && !c.register_crosses_ranks[waited]) return this.fillWait(g, "own", begin, end, y, height, scene);
    const cause = c.act_cause[act];
    const sent = cause < 0 ? begin : Math.min(end, Math.max(begin, c.act_begin[cause] + c.act_ns[cause]));
    this.fillWait(g, "late", begin, sent, y, height, scene);
    this.fillWait(g, "way", sent, end, y, height, scene);
  }

  private fillWait(g: CanvasRenderingContext2D, kind: WaitKind, from: number, to: number, y: number, height: number,
                   scene: Scene): void {
    const x = this.xAt(from, scene);
    const w = this.xAt(to, scene) - x;
    if (w < 0.5) return;
    g.fillStyle = this.patterns[kind];
    g.fillRect(x, y + height * 0.25, w, height * 0.5);
  }

  private colourOf(actor: number, act: number, scene: Scene): string {
    if (scene.found !== null && !scene.found[actor]) return this.theme.line;
    if (scene.colour === "micro-batch" && act >= 0) return microBatchColour(this.run.columns.act_micro_batch[act]);
    return this.colours[actor];
  }

  private drawText(g: CanvasRenderingContext2D, text: string, x: number, y: number, w: number, height: number): void {
    const visible = Math.max(x, this.namesWidth());
    const room = Math.floor((x + w - visible - 6) / 6.5);
    if (room < 3) return;
    g.fillStyle = "#ffffff";
    g.fillText(text.length <= room ? text : text.slice(0, room - 1) + "…", visible + 3, y + height / 2);
  }

  private drawSteps(g: CanvasRenderingContext2D, height: number, scene: Scene): void {
    g.strokeStyle = this.theme.text;
    g.setLineDash([3, 3]);
    g.lineWidth = 1;
    const steps = this.run.object.steps;
    let last = -1e9;
    for (const step of steps) {
      const x = this.xAt(step.begin_ns, scene);
      if (x < this.namesWidth() - 1 || x > this.canvas.clientWidth || x - last < 4) continue;
      last = x;
      g.beginPath();
      g.moveTo(x, AXIS_HEIGHT);
      g.lineTo(x, height);
      g.stroke();
    }
    g.setLineDash([]);
  }

  // Arrows lead from each cause to the act that waited for it, back from the selected act: data in one line, credits in
  // another.
  private drawCauses(g: CanvasRenderingContext2D, scene: Scene): void {
    const c = this.run.columns;
    let act = scene.act;
    for (let n = 0; n < 12 && act >= 0; ++n) {
      const cause = c.act_cause[act];
      if (cause < 0) break;
      const x1 = this.xAt(c.act_begin[cause] + c.act_ns[cause], scene);
      const y1 = this.rowTop(queueOfAct(this.run, cause), scene) + ROW_HEIGHT / 2;
      const x2 = this.xAt(c.act_begin[act], scene);
      const y2 = this.rowTop(queueOfAct(this.run, act), scene) + ROW_HEIGHT / 2;
      const isCredit = c.act_wait[act] === 2;
      g.strokeStyle = isCredit ? WAITS.credit.colour : this.theme.accent;
      g.setLineDash(isCredit ? [6, 3] : []);
      g.lineWidth = 1.5;
      g.beginPath();
      g.moveTo(x1, y1);
      const bend = Math.max(12, (x2 - x1) / 2);
      g.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      g.stroke();
      g.setLineDash([]);
      g.fillStyle = g.strokeStyle;
      g.beginPath();
      g.moveTo(x2, y2);
      g.lineTo(x2 - 7, y2 - 4);
      g.lineTo(x2 - 7, y2 + 4);
      g.fill();
      act = cause;
    }
  }

  private drawMeasure(g: CanvasRenderingContext2D, height: number, scene: Scene): void {
    const [a, b] = scene.measure!;
    const x = this.xAt(Math.min(a, b), scene);
    const w = this.xAt(Math.max(a, b), scene) - x;
    g.globalAlpha = 0.2;
    g.fillStyle = this.theme.accent;
    g.fillRect(x, AXIS_HEIGHT, w, height);
    g.globalAlpha = 1;
  }

  private drawNames(g: CanvasRenderingContext2D, first: number, last: number, scene: Scene): void {
    g.fillStyle = this.theme.ground;
    g.fillRect(0, 0, this.namesWidth(), this.canvas.clientHeight);
    g.fillStyle = this.theme.text;
    g.save();
    g.beginPath();
    g.rect(0, AXIS_HEIGHT, this.namesWidth() - 6, this.canvas.clientHeight);
    g.clip();
    for (let q = first; q <= last; ++q) {
      g.fillText(this.run.object.queues[q].name, 8, this.rowTop(q, scene) + ROW_HEIGHT / 2);
    }
    g.restore();
  }

  private drawAxis(g: CanvasRenderingContext2D, width: number, scene: Scene): void {
    g.fillStyle = this.theme.ground;
    g.fillRect(0, 0, width, AXIS_HEIGHT);
    const span = scene.to - scene.from;
    // A round time that is no less than what a label needs.
    const least = (span * TICK_WIDTH_MIN) / this.width();
    const ten = Math.pow(10, Math.floor(Math.log10(Math.max(1, least))));
    const every = least <= ten ? ten : least <= 2 * ten ? 2 * ten : least <= 5 * ten ? 5 * ten : 10 * ten;
    const [scale, unit] = every < 1e3 ? [1, "ns"] : every < 1e6 ? [1e-3, "µs"] : every < 1e9 ? [1e-6, "ms"] : [1e-9, "s"];
    g.strokeStyle = this.theme.line;
    g.lineWidth = 1;
    for (let at = Math.ceil(scene.from / every) * every; at <= scene.to; at += every) {
      const x = this.xAt(at, scene);
      if (x < this.namesWidth()) continue;
      g.beginPath();
      g.moveTo(x, AXIS_HEIGHT - 5);
      g.lineTo(x, AXIS_HEIGHT);
      g.stroke();
      g.fillStyle = this.theme.faint;
      g.fillText(`${(at * scale).toLocaleString("en-US", { maximumFractionDigits: 3 })} ${unit}`, x + 3, AXIS_HEIGHT / 2);
    }
  }
}

// Returns a tile of a wait's pattern.
export function waitTile(kind: WaitKind): HTMLCanvasElement {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const g = tile.getContext("2d")!;
  g.globalAlpha = 0.35;
  g.fillStyle = WAITS[kind].colour;
  g.fillRect(0, 0, 8, 8);
  g.globalAlpha = 1;
  g.strokeStyle = g.fillStyle = WAITS[kind].colour;
  g.lineWidth = 2;
  g.beginPath();
  if (kind === "own") {
    g.arc(4, 4, 1.6, 0, 7);
    g.fill();
    return tile;
  }
  const lines: [number, number, number, number][] = kind === "late" ? [[0, 8, 8, 0], [-2, 2, 2, -2], [6, 10, 10, 6]] :
    kind === "way" ? [[0, 0, 8, 8], [-2, 6, 2, 10], [6, -2, 10, 2]] : [[0, 4, 8, 4], [4, 0, 4, 8]];
  for (const [x1, y1, x2, y2] of lines) {
    g.moveTo(x1, y1);
    g.lineTo(x2, y2);
  }
  g.stroke();
  return tile;
}
