// The rows of a timeline as one image. A column of pixels has the colour of its longest act, as high as acts fill its
// time, and above it a pattern for each cause of its waits, as high as the wait is long. A picture costs a few passes
// over its pixels, whatever the number of acts.

import { Run } from "./bundle";
import { microBatchColour, WAIT_KINDS, WaitKind, WAITS } from "./colours";
import { actOf, countOf, levelFor, NO_WAIT, placeAfter, QueueDetail, waitKind, waitSent } from "./detail";
import { nameOf } from "./view";

const KINDS = WAIT_KINDS.length;
const WHOLE = 255; // of a share in the levels of detail
const LOWEST = 0.25; // the share of the height that the shortest act has
const ACTS_OF_COLUMN_MAX = 16; // that are looked at
const TILE = 8; // pixels
const WHOLE_MIN = 2; // pixels of an act or a wait that has whole columns
const EDGE_MIN = 5; // pixels of an act whose first column is darker, so that it ends the act before it
const TEXT_MIN = 34; // pixels of an act with a name
const TEXT_PAD = 3;
const TEXTS_MAX = 4000; // that are kept

export interface PixelScene {
  from: number; // ns
  to: number;
  colour: "phase" | "micro-batch";
  found: Uint8Array | null; // by actor; null: nothing is looked for
}

export interface PixelTheme {
  ground: string;
  line: string;
  text: string;
}

// Returns a colour of a style sheet as a pixel.
const brush = (() => {
  let g: CanvasRenderingContext2D | undefined;
  const known = new Map<string, number>();
  return (colour: string): number => {
    const old = known.get(colour);
    if (old !== undefined) return old;
    if (g === undefined) {
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 1;
      g = canvas.getContext("2d", { willReadFrequently: true })!;
    }
    g.fillStyle = colour;
    g.fillRect(0, 0, 1, 1);
    const pixel = new Uint32Array(g.getImageData(0, 0, 1, 1).data.buffer)[0];
    known.set(colour, pixel);
    return pixel;
  };
})();

function mix(a: number, b: number, share: number): number {
  let mixed = 0;
  for (let bit = 0; bit < 24; bit += 8) {
    const one = (a >>> bit) & 255;
    mixed |= Math.round(one + (((b >>> bit) & 255) - one) * share) << bit;
  }
  return (mixed | 0xff000000) >>> 0;
}

// Returns whether black reads better than white on a colour.
function isLight(pixel: number): boolean {
  const linear = (part: number) => Math.pow((part & 255) / 255, 2.2);
  return 0.2126 * linear(pixel) + 0.7152 * linear(pixel >>> 8) + 0.0722 * linear(pixel >>> 16) > 0.18;
}

interface Mask {
  width: number;
  alpha: Uint8Array;
}

export class RowPixels {
  private image: ImageData | undefined;
  private pixels = new Uint32Array(0);
  private width = 0;
  private height = 0;
  // These have an element for each column of the row that is painted.
  private busy = new Float32Array(0);
  private longest = new Float32Array(0);
  private colour = new Uint32Array(0);
  private waits = new Float32Array(0);
  private readonly tiles: Uint32Array[];
  private readonly ground: number;
  private readonly line: number;
  private readonly text: number;
  private readonly ofMicroBatch: number[] = [];
  private hits = new WeakMap<QueueDetail, Uint32Array>(); // by span: 1 + an actor that is looked for, or 0
  private hitsFound: Uint8Array | null = null;
  private masks = new Map<string, Mask>();
  private maskHeight = 0;
  private ratio = 1;

  constructor(private readonly run: Run, private readonly ofActor: Uint32Array, theme: PixelTheme) {
    this.ground = brush(theme.ground);
    this.line = brush(theme.line);
    this.text = brush(theme.text);
    this.tiles = WAIT_KINDS.map((kind) => tilePixels(kind, this.ground));
  }

  static coloursOf(colours: string[]): Uint32Array {
    return Uint32Array.from(colours, (colour) => brush(colour));
  }

  // Begins a picture of a width and height in pixels.
  begin(width: number, height: number, ratio: number): void {
    this.ratio = ratio;
    if (this.image === undefined || this.width !== width || this.height !== height) {
      this.width = width;
      this.height = height;
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.busy = new Float32Array(width);
      this.longest = new Float32Array(width);
      this.colour = new Uint32Array(width);
      this.waits = new Float32Array(width * KINDS);
    }
    this.pixels.fill(this.ground);
  }
  end(g: CanvasRenderingContext2D, left: number, top: number): void {
    g.putImageData(this.image!, left, top);
  }

  // Paints a row from `top` on, which may lie outside the picture in part.
  paintRow(row: QueueDetail, top: number, height: number, scene: PixelScene): void {
    if (countOf(row) === 0 || top >= this.height || top + height <= 0) return;
    this.busy.fill(0);
    this.longest.fill(0);
    this.waits.fill(0);
    const level = levelFor(row, (scene.to - scene.from) / this.width);
    const names: { act: number; x: number; end: number }[] = [];
    if (level < 0) this.collectActs(row, scene, names);
    else this.collectSpans(row, level, scene);
    this.fillColumns(top, height);
    for (const name of names) {
      const text = nameOf(this.run, "actor_function", this.run.columns.act_actor[name.act]);
      this.paintText(text, name.x, name.end, top, height);
    }
  }

  // Paints a wait without an act behind it.
  paintWait(kind: WaitKind, x: number, end: number, top: number, height: number): void {
    const tile = this.tiles[WAIT_KINDS.indexOf(kind)];
    for (let y = Math.max(0, top); y < Math.min(this.height, top + height); ++y) {
      for (let i = Math.max(0, x); i < Math.min(this.width, end); ++i)
        this.pixels[y * this.width + i] = tile[(y % TILE) * TILE + (i % TILE)];
    }
  }

  // Paints a dashed line from top to bottom.
  paintBorder(x: number): void {
    if (x < 0 || x >= this.width) return;
    for (let y = 0; y < this.height; ++y) if (y % 6 < 3) this.pixels[y * this.width + x] = this.text;
  }

  private colourOf(actor: number, microBatch: number, scene: PixelScene): number {
    if (scene.found !== null && scene.found[actor] === 0) return this.line;
    if (scene.colour === "phase" || microBatch < 0) return this.ofActor[actor];
    let pixel = this.ofMicroBatch[microBatch];
    if (pixel === undefined) pixel = this.ofMicroBatch[microBatch] = brush(microBatchColour(microBatch));
    return pixel;
  }

  private collectSpans(row: QueueDetail, level: number, scene: PixelScene): void {
    const { busy, colour, waits, width } = this;
    const first = row.starts[level];
    const count = row.starts[level + 1] - first;
    const length = row.span * Math.pow(2, level);
    const hits = scene.found === null ? null : this.hitsOf(row, scene.found);
    const at = (scene.from - row.from) / length;
    const step = (scene.to - scene.from) / width / length;
    for (let x = 0; x < width; ++x) {
      const low = Math.floor(at + x * step);
      const high = Math.max(low + 1, Math.floor(at + (x + 1) * step));
      if (high <= 0) continue;
      if (low >= count) break;
      let all = 0, most = 0, main = -1, hit = 0;
      const end = Math.min(high, count);
      const share = 1 / (WHOLE * (high - low));
      for (let i = Math.max(0, low); i < end; ++i) {
        const of = first + i;
        const part = row.busy[of];
        all += part;
        if (part > most) {
          most = part;
          main = of;
        }
        if (hits !== null && hits[of] > 0) hit = hits[of];
        for (let k = 0; k < KINDS; ++k) waits[x * KINDS + k] += row.waits[of * KINDS + k] * share;
      }
      if (main < 0) continue;
      busy[x] = hit > 0 ? 1 : all * share; // what is looked for stands out, however short it is
      if (hit > 0) colour[x] = this.colourOf(hit - 1, -1, scene);
      else colour[x] = hits !== null ? this.line : this.colourOf(row.actor[main], row.microBatch[main], scene);
    }
  }

  private collectActs(row: QueueDetail, scene: PixelScene, names: { act: number; x: number; end: number }[]): void {
    const c = this.run.columns;
    const { width } = this;
    const count = countOf(row);
    const perNs = width / (scene.to - scene.from);
    let column = -1, inColumn = 0;
    for (let place = Math.max(0, placeAfter(c, row, scene.from) - 1); place < count; ++place) {
      const act = actOf(row, place);
      const begin = c.act_begin[act];
      const x = (begin - scene.from) * perNs;
      if (x - c.act_wait_ns[act] * perNs > width) break;
      const end = x + c.act_ns[act] * perNs;
      const kind = waitKind(c, act);
      if (kind !== NO_WAIT) this.collectWait(act, kind, scene.from, perNs);
      if (x > width) break;
      this.collectAct(act, x, end, scene);
      if (end - x > TEXT_MIN * this.ratio) names.push({ act, x, end });
      // A column with many acts is told by some of them.
      inColumn = Math.floor(end) === column ? inColumn + 1 : 0;
      column = Math.floor(end);
      if (inColumn < ACTS_OF_COLUMN_MAX) continue;
      place = Math.max(place, placeAfter(c, row, scene.from + (column + 1) / perNs) - 2);
      inColumn = 0;
    }
  }

  private collectAct(act: number, x: number, end: number, scene: PixelScene): void {
    const { busy, longest, colour, width } = this;
    const c = this.run.columns;
    const actor = c.act_actor[act];
    const pixel = this.colourOf(actor, c.act_micro_batch[act], scene);
    const standsOut = scene.found !== null && scene.found[actor] === 1;
    if (end - x >= WHOLE_MIN) [x, end] = [Math.round(x), Math.round(end)];
    const first = Math.floor(x);
    for (let i = Math.max(0, first); i < width && (i < end || i === first); ++i) {
      const share = Math.max(1e-3, Math.min(end, i + 1) - Math.max(x, i));
      busy[i] += standsOut ? 1 : share;
      if (!standsOut && share <= longest[i]) continue;
      longest[i] = standsOut ? 2 : share; // nothing takes its column
      colour[i] = pixel;
    }
    if (end - x > EDGE_MIN && first >= 0 && first < width) colour[first] = mix(pixel, this.ground, 0.45);
  }

  private collectWait(act: number, kind: number, from: number, perNs: number): void {
    const c = this.run.columns;
    const end = (c.act_begin[act] - from) * perNs;
    const begin = end - c.act_wait_ns[act] * perNs;
    const sent = WAIT_KINDS[kind] === "late" ? (waitSent(c, act) - from) * perNs : end;
    this.addWait(kind, begin, sent);
    if (sent < end) this.addWait(WAIT_KINDS.indexOf("way"), sent, end);
  }
  private addWait(kind: number, x: number, end: number): void {
    if (end - x >= WHOLE_MIN) [x, end] = [Math.round(x), Math.round(end)];
    const last = Math.min(this.width, end);
    for (let i = Math.max(0, Math.floor(x)); i < last; ++i)
      this.waits[i * KINDS + kind] += Math.min(end, i + 1) - Math.max(x, i);
  }

  // Fills the columns of a row from below: the act, then its waits. Above them stays the ground.
  private fillColumns(top: number, height: number): void {
    const { width, pixels, busy, waits, colour } = this;
    const lowest = Math.min(this.height, top + height) - 1;
    const highest = Math.max(0, top);
    for (let x = 0; x < width; ++x) {
      const share = busy[x];
      let limit = share > 0 ? Math.max(LOWEST, share < 1 ? share : 1) * height : 0;
      const pixel = colour[x];
      let y = lowest;
      const actEnd = Math.max(highest, top + height - Math.round(limit));
      for (let at = y * width + x; y >= actEnd; --y, at -= width) pixels[at] = pixel;
      for (let k = 0; k < KINDS; ++k) {
        const wait = waits[x * KINDS + k];
        if (wait === 0) continue;
        limit += wait * height;
        const end = Math.max(highest, top + height - Math.round(limit));
        const tile = this.tiles[k];
        for (let at = y * width + x; y >= end; --y, at -= width) pixels[at] = tile[(y % TILE) * TILE + (x % TILE)];
      }
    }
  }

  // Returns which spans of a row hold an act of what is looked for.
  private hitsOf(row: QueueDetail, found: Uint8Array): Uint32Array {
    if (this.hitsFound !== found) {
      this.hitsFound = found;
      this.hits = new WeakMap();
    }
    const known = this.hits.get(row);
    if (known !== undefined) return known;
    const c = this.run.columns;
    const hits = new Uint32Array(row.starts[row.starts.length - 1]);
    const spans = row.starts[1];
    const count = countOf(row);
    for (let place = 0; place < count; ++place) {
      const act = actOf(row, place);
      const actor = c.act_actor[act];
      if (found[actor] === 0) continue;
      const low = Math.min(spans - 1, Math.floor((c.act_begin[act] - row.from) / row.span));
      const high = (c.act_begin[act] + c.act_ns[act] - row.from) / row.span;
      for (let i = low; i < spans && (i < high || i === low); ++i) hits[i] = actor + 1;
    }
    for (let level = 1; level + 1 < row.starts.length; ++level) {
      for (let i = row.starts[level - 1]; i < row.starts[level]; ++i)
        if (hits[i] > 0) hits[row.starts[level] + ((i - row.starts[level - 1]) >> 1)] = hits[i];
    }
    this.hits.set(row, hits);
    return hits;
  }

  // Paints as much of a text as fits between two places, on what is there.
  private paintText(text: string, x: number, end: number, top: number, height: number): void {
    const pad = Math.round(TEXT_PAD * this.ratio);
    const left = Math.max(0, Math.floor(x)) + pad;
    const right = Math.min(this.width, Math.floor(end)) - pad;
    if (right - left < TEXT_MIN * this.ratio / 2) return;
    const { pixels, width } = this;
    const back = pixels[Math.min(this.height - 1, Math.max(0, top + height - 1)) * width + left];
    const ink = isLight(back) ? 0xff000000 : 0xffffffff;
    const whole = this.maskOf(text, height);
    const dots = this.maskOf("…", height);
    const isCut = whole.width > right - left;
    this.blend(whole, left, isCut ? right - dots.width : right, top, height, ink);
    if (isCut) this.blend(dots, right - dots.width, right, top, height, ink);
  }
  private blend(mask: Mask, left: number, right: number, top: number, height: number, ink: number): void {
    const { pixels, width } = this;
    const end = Math.min(right, left + mask.width);
    for (let y = Math.max(0, top); y < Math.min(this.height, top + height); ++y) {
      const line = (y - top) * mask.width - left;
      for (let x = left; x < end; ++x) {
        const alpha = mask.alpha[line + x];
        if (alpha > 0) pixels[y * width + x] = alpha > 250 ? ink : mix(pixels[y * width + x], ink, alpha / 255);
      }
    }
  }
  private maskOf(text: string, height: number): Mask {
    if (this.maskHeight !== height || this.masks.size > TEXTS_MAX) {
      this.masks.clear();
      this.maskHeight = height;
    }
    const known = this.masks.get(text);
    if (known !== undefined) return known;
    const canvas = document.createElement("canvas");
    const font = `${Math.round(12 * this.ratio)}px system-ui, sans-serif`;
    const before = canvas.getContext("2d")!;
    before.font = font;
    const width = Math.max(1, Math.ceil(before.measureText(text).width));
    canvas.width = width;
    canvas.height = height;
    const g = canvas.getContext("2d", { willReadFrequently: true })!;
    g.font = font;
    g.textBaseline = "middle";
    g.fillText(text, 0, height / 2);
    const data = g.getImageData(0, 0, width, height).data;
    const alpha = new Uint8Array(width * height);
    for (let i = 0; i < alpha.length; ++i) alpha[i] = data[4 * i + 3];
    const mask = { width, alpha };
    this.masks.set(text, mask);
    return mask;
  }
}

function tilePixels(kind: WaitKind, ground: number): Uint32Array {
  const g = waitTile(kind).getContext("2d")!;
  const data = g.getImageData(0, 0, TILE, TILE).data;
  const pixels = new Uint32Array(TILE * TILE);
  for (let i = 0; i < pixels.length; ++i) {
    const ink = (data[4 * i] | (data[4 * i + 1] << 8) | (data[4 * i + 2] << 16) | 0xff000000) >>> 0;
    pixels[i] = mix(ground, ink, data[4 * i + 3] / 255);
  }
  return pixels;
}

// Returns a tile of a wait's pattern.
export function waitTile(kind: WaitKind): HTMLCanvasElement {
  const tile = document.createElement("canvas");
  tile.width = tile.height = TILE;
  const g = tile.getContext("2d")!;
  g.globalAlpha = 0.35;
  g.fillStyle = WAITS[kind].colour;
  g.fillRect(0, 0, TILE, TILE);
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
