// Colours that people with any kind of colour vision tell apart (after Okabe and Ito). No colour stands alone: phases
// have names beside them, and waits have patterns.

export const PHASES: { [phase: string]: string } = {
  forward: "#0072b2",
  backward: "#d55e00",
  "weight gradient": "#cc79a7",
  update: "#009e73",
  boxing: "#e69f00",
  data: "#56b4e9",
  metric: "#8a8a8a",
};
const OTHER = "#6b7fa8";

export function phaseColour(phase: string): string {
  return PHASES[phase] || OTHER;
}

// The patterns of waits: stripes that lean right, dots, stripes that lean left.
export type WaitKind = "late" | "way" | "own" | "credit";
export const WAIT_KINDS: WaitKind[] = ["late", "way", "own", "credit"];
export const WAITS: { [kind in WaitKind]: { colour: string; name: string } } = {
  late: { colour: "#b9b9b9", name: "waits for a late rank" },
  way: { colour: "#e69f00", name: "waits for a token under way" },
  own: { colour: "#56b4e9", name: "waits for input of the own rank" },
  credit: { colour: "#cc79a7", name: "waits for a free slot" },
};

// The parts of a step (tools/trace/step_parts.h), in their order.
export const PARTS = ["#0072b2", "#e69f00", "#56b4e9", "#f0c066", "#7f7f7f", "#b9b9b9", "#9fd3f0", "#cc79a7", "#e8e8e8"];

// The parts of a step of a run that goes on (kStepParts of tools/live/live_run.h): the place of each among PARTS. Waits
// for other ranks are one part there.
export const LIVE_PARTS = [0, 1, 2, 5, 6, 7, 8];

// A colour for each micro-batch; neighbours differ in hue and in lightness.
export function microBatchColour(n: number): string {
  const hue = (n * 137.5) % 360;
  const light = [42, 56, 34, 64][n % 4];
  return `hsl(${hue.toFixed(0)}, 60%, ${light}%)`;
}
