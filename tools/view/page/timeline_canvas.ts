// Draws the timeline on a canvas: a row for each queue, and below an open queue one for each of its actors. The acts and
// waits of all rows are one image (timeline_pixels.ts). On top of it lie the names, the scale, marks of failures, and
// arrows to the selected act from what ended its wait.

import { Failure, firstAbove, Run } from "./bundle";
import { phaseColour, WAITS } from "./colours";
import { QueueDetail } from "./detail";
import { PixelScene, RowPixels } from "./timeline_pixels";
import { nameOf, queueOfAct } from "./view";

export const ROW_HEIGHT = 26;
export const AXIS_HEIGHT = 22;
const NAMES_WIDTH_MAX = 260;
const NAMES_PAD = 6; // between a name and the acts
const NAMES_SHARE_MAX = 0.4; // of the width
const TICK_WIDTH_MIN = 90; // pixels, of a time with its unit
const PAD = 3;
const NAME_AT = 22; // pixels left of a name, for the sign of a row that opens
const ACTOR_AT = 38;
const tickText = new Intl.NumberFormat("en-US", { maximumFractionDigits: 3 });
const STEPS_APART = 12; // pixels between the borders of steps, as a mean, if they are drawn
const SHORTEST_CUT = 16; // signs of a text of which less would say nothing

function failureText(failure: Failure): string {
  return `✖ ${failure.text}`;
}

export interface Scene extends PixelScene {
  top: number; // pixels of rows that are scrolled away
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

// A row of the timeline: a queue, or an actor of an open queue.
export interface Row {
  queue: number;
  actor: number; // -1: the queue
  isOpen: boolean; // the rows of its actors follow
  detail: QueueDetail;
}

export class TimelineCanvas {
  private readonly pixels: RowPixels;
  private readonly stepBegins: Float64Array;
  private canvasWidth = 0;
  private rows: Row[] = [];
  private rowOfQueue: number[] = [];
  private rowOfActor = new Map<number, number>();
  private cutNames = new WeakMap<Row, string>(); // as much of the names of rows as fits
  private cutNamesWidth = 0;

  constructor(private readonly canvas: HTMLCanvasElement, private readonly run: Run, private readonly theme: Theme) {
    const colours = Array.from(run.columns.actor_phase, (_, actor) => phaseColour(nameOf(run, "actor_phase", actor)));
    this.pixels = new RowPixels(run, RowPixels.coloursOf(colours), theme);
    this.look();
    this.stepBegins = Float64Array.from(run.object.steps, (step) => step.begin_ns);
  }

  setRows(rows: Row[]): void {
    this.rows = rows;
    this.rowOfQueue = [];
    this.rowOfActor.clear();
    rows.forEach((row, place) => {
      if (row.actor < 0) this.rowOfQueue[row.queue] = place;
      else this.rowOfActor.set(row.actor, place);
    });
  }

  // Returns the moment at a horizontal place of the canvas, and the place of a moment.
  nsAt(x: number, scene: Scene): number {
    return scene.from + ((x - this.namesWidth()) / this.width()) * (scene.to - scene.from);
  }
  xAt(ns: number, scene: Scene): number {
    return this.namesWidth() + ((ns - scene.from) / (scene.to - scene.from)) * this.width();
  }
  // Returns the row at a height of the canvas; undefined beside the rows.
  rowAt(y: number, scene: Scene): Row | undefined {
    return y < AXIS_HEIGHT ? undefined : this.rows[this.placeAt(y, scene)];
  }
  private placeAt(y: number, scene: Scene): number {
    return Math.floor((y - AXIS_HEIGHT + scene.top) / ROW_HEIGHT);
  }
  // Returns the place of the row that shows an act: that of its actor, if it has one.
  placeOfAct(act: number): number {
    const row = this.rowOfActor.get(this.run.columns.act_actor[act]);
    return row === undefined ? this.rowOfQueue[queueOfAct(this.run, act)] : row;
  }
  // Returns the width of the names of queues, left of the acts. A narrow window cuts names.
  namesWidth(): number {
    return Math.min(NAMES_WIDTH_MAX, Math.round(NAMES_SHARE_MAX * this.canvasWidth));
  }
  private width(): number {
    return Math.max(1, this.canvasWidth - this.namesWidth());
  }
  // Asks for the width of the canvas, which a browser may have to compute.
  private look(): void {
    this.canvasWidth = this.canvas.clientWidth;
  }

  draw(scene: Scene): void {
    const ratio = window.devicePixelRatio || 1;
    this.look();
    const width = this.canvasWidth;
    const height = this.canvas.clientHeight;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
    }
    const g = this.canvas.getContext("2d")!;
    const first = Math.max(0, Math.floor(scene.top / ROW_HEIGHT));
    const last = Math.min(this.rows.length - 1, this.placeAt(height, scene));
    this.drawPixels(g, wide, high, ratio, first, last, scene);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    g.save();
    g.beginPath();
    g.rect(this.namesWidth(), AXIS_HEIGHT, width - this.namesWidth(), height - AXIS_HEIGHT);
    g.clip();
    this.drawOpenActs(g, scene);
    this.drawFailures(g, height, scene);
    if (scene.act >= 0) this.drawSelected(g, scene);
    if (scene.act >= 0) this.drawCauses(g, scene);
    if (scene.measure) this.drawMeasure(g, height, scene);
    g.restore();
    this.drawNames(g, first, last, scene);
    this.drawAxis(g, width, scene);
  }

  // Draws the acts and waits of all rows, and the borders of steps.
  private drawPixels(g: CanvasRenderingContext2D, wide: number, high: number, ratio: number, first: number,
                     last: number, scene: Scene): void {
    const left = Math.round(this.namesWidth() * ratio);
    const top = Math.round(AXIS_HEIGHT * ratio);
    if (wide <= left || high <= top) return;
    const pixels = this.pixels;
    pixels.begin(wide - left, high - top, ratio);
    const lineOf = (place: number) => Math.round((place * ROW_HEIGHT + PAD - scene.top) * ratio);
    const height = Math.round((ROW_HEIGHT - 2 * PAD) * ratio);
    for (let place = first; place <= last; ++place)
      pixels.paintRow(this.rows[place].detail, lineOf(place), height, scene);
    for (const act of this.run.object.open_acts || []) {
      if (act.waits) pixels.paintWait("late", Math.round((this.xAt(act.since_ns, scene) - this.namesWidth()) * ratio),
                                      wide - left, lineOf(this.rowOfQueue[act.queue]), height);
    }
    const end = firstAbove(this.stepBegins, scene.to, 0, this.stepBegins.length);
    const begin = firstAbove(this.stepBegins, scene.from - 1, 0, end);
    if ((end - begin) * STEPS_APART < this.width()) { // the borders of more steps would hide the acts
      for (let i = begin; i < end; ++i)
        pixels.paintBorder(Math.round((this.xAt(this.stepBegins[i], scene) - this.namesWidth()) * ratio));
    }
    pixels.end(g, left, top);
  }

  private rowTop(place: number, scene: Scene): number {
    return AXIS_HEIGHT + place * ROW_HEIGHT - scene.top;
  }

  private drawSelected(g: CanvasRenderingContext2D, scene: Scene): void {
    const c = this.run.columns;
    const x = this.xAt(c.act_begin[scene.act], scene);
    const w = Math.max(1, this.xAt(c.act_begin[scene.act] + c.act_ns[scene.act], scene) - x);
    g.strokeStyle = this.theme.accent;
    g.lineWidth = 2;
    for (const place of new Set([this.rowOfQueue[queueOfAct(this.run, scene.act)], this.placeOfAct(scene.act)]))
      g.strokeRect(x - 1, this.rowTop(place, scene) + PAD - 1, w + 2, ROW_HEIGHT - 2 * PAD + 2);
  }

  // Draws where a process or the job failed: a line through the row of the rank, or through all rows.
  private drawFailures(g: CanvasRenderingContext2D, bottom: number, scene: Scene): void {
    for (const failure of this.run.object.failures || []) {
      const x = this.xAt(failure.at_ns, scene);
      if (x < this.namesWidth() || x > this.canvasWidth) continue;
      const top = failure.queue === undefined ? AXIS_HEIGHT : this.rowTop(this.rowOfQueue[failure.queue], scene);
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
    return x + width <= this.canvasWidth ? x : x - width;
  }

  // Draws the acts and waits that were open when the record ended. They have no end.
  private drawOpenActs(g: CanvasRenderingContext2D, scene: Scene): void {
    const height = ROW_HEIGHT - 2 * PAD;
    for (const act of this.run.object.open_acts || []) {
      const y = this.rowTop(this.rowOfQueue[act.queue], scene) + PAD;
      if (y + height < 0 || y > this.canvas.clientHeight) continue;
      // The mark of a failure in this row lies left of the text.
      const failure = (this.run.object.failures || []).find((of) => of.queue === act.queue);
      let x = this.xAt(act.since_ns, scene);
      if (failure !== undefined) {
        const line = this.xAt(failure.at_ns, scene);
        x = Math.max(x, line, this.failureTextAt(g, failure, line) + this.failureWidth(g, failure));
      }
      x = Math.max(x, this.namesWidth());
      // The text has a ground of its own, because a pattern of lines behind it strikes it through.
      const text = this.fitted(g, `⚠ ${act.text}`, this.canvasWidth - x - 8);
      g.fillStyle = this.theme.ground;
      g.fillRect(x + 2, y, g.measureText(text).width + 4, height);
      g.fillStyle = this.theme.text;
      g.fillText(text, x + 4, y + height / 2);
    }
  }

  // Returns as much of a text as a width holds, with an ellipsis where it is cut, or its first sign if little fits.
  private fitted(g: CanvasRenderingContext2D, text: string, width: number, shortest = SHORTEST_CUT): string {
    if (g.measureText(text).width <= width) return text;
    let length = text.length - 1;
    while (length >= shortest && g.measureText(text.slice(0, length) + "…").width > width) --length;
    return length >= shortest ? text.slice(0, length) + "…" : text.slice(0, 1);
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
      const y1 = this.rowTop(this.placeOfAct(cause), scene) + ROW_HEIGHT / 2;
      const x2 = this.xAt(c.act_begin[act], scene);
      const y2 = this.rowTop(this.placeOfAct(act), scene) + ROW_HEIGHT / 2;
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
    g.rect(0, AXIS_HEIGHT, this.namesWidth() - NAMES_PAD, this.canvas.clientHeight);
    g.clip();
    for (let place = first; place <= last; ++place) {
      const row = this.rows[place];
      const y = this.rowTop(place, scene) + ROW_HEIGHT / 2;
      g.fillStyle = row.actor < 0 ? this.theme.text : this.theme.faint;
      if (row.actor >= 0) {
        g.fillText(this.fittedName(g, row), ACTOR_AT, y);
        continue;
      }
      if (row.detail.end > row.detail.first) g.fillText(row.isOpen ? "▾" : "▸", 7, y);
      g.fillText(this.fittedName(g, row), NAME_AT, y);
    }
    g.restore();
  }

  private wholeName(row: Row): string {
    return row.actor < 0 ? this.run.object.queues[row.queue].name : nameOf(this.run, "actor_name", row.actor);
  }
  // Returns as much of the name of a row as fits. Every picture asks for it.
  private fittedName(g: CanvasRenderingContext2D, row: Row): string {
    if (this.cutNamesWidth !== this.namesWidth()) {
      this.cutNamesWidth = this.namesWidth();
      this.cutNames = new WeakMap();
    }
    let cut = this.cutNames.get(row);
    if (cut === undefined) {
      const left = row.actor < 0 ? NAME_AT : ACTOR_AT;
      cut = this.fitted(g, this.wholeName(row), this.namesWidth() - NAMES_PAD - left, 1);
      this.cutNames.set(row, cut);
    }
    return cut;
  }
  // Returns the whole name of a row of the last picture that shows a part of it; empty: it shows all of it.
  cutNameOf(row: Row): string {
    const name = this.wholeName(row);
    const cut = this.cutNames.get(row);
    return cut === undefined || cut === name ? "" : name;
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
      g.fillText(`${tickText.format(at * scale)} ${unit}`, x + 3, AXIS_HEIGHT / 2);
    }
  }
}
