// A run or a plan as `weir view` hands it over: an object and columns of numbers (tools/view/run_bundle.h).

export type Column = Float64Array | Float32Array | Int32Array | Uint32Array | Uint8Array;

export interface Step {
  step: number;
  begin_ns: number;
  end_ns: number;
  first_of_run: boolean;
}

export interface Part {
  name: string;
  share: number;
  ns_per_step: number;
}

export interface Device {
  rank: number;
  name: string;
  queue?: number;
  busy: number;
  waits_for_input: number;
  waits_for_credit: number;
  between_acts: number;
  core_share?: number;
  acts_dropped: number;
}

export interface WhatIf {
  change: string;
  about: string;
  finished: boolean;
  step_ns?: number;
  gain?: number;
  more_bytes?: number;
}

export interface SlowRank {
  rank: number;
  factor: number;
  more_ns_per_step: number;
  peers: number[];
  functions: { name: string; ns: number; elsewhere_ns: number; more_ns_per_step: number }[];
}

// The critical path of one step (tools/trace/step_paths.h).
export interface PathGroup {
  cause: string;
  name: string; // empty: between acts
  ranks: number[];
  ns: number;
  share: number;
  times: number;
}

export interface StepPath {
  step: number;
  ns: number;
  groups: PathGroup[];
}

// The actors as a graph (tools/trace/back_pressure.h).
export interface PressureNode {
  name: string;
  phase: string;
  actors: number;
  ranks: number[];
  row: number;
  column: number;
  busy: number;
  starved: number;
  blocked: number;
  ready: number;
  busy_ns_per_step: number;
}

export interface PressureEdge {
  from: number;
  to: number;
  registers: number;
  worst: string;
  lags: boolean;
  bytes_per_step: number;
  slots_in_use: number;
  full: number;
  starved_ns_per_step: number;
  blocked_ns_per_step: number;
  held_up_ns_per_step: number;
}

export interface BackPressure {
  text: string;
  nodes: PressureNode[];
  edges: PressureEdge[];
  chain: number[];
}

// The memory of each rank over a step (tools/trace/memory_use.h).
export interface HeldTensor {
  name: string;
  registers: number;
  slots: number;
  bytes: number;
  writer: string;
  last_reader: string;
  lags: boolean;
  written_at_ns?: number;
  reader_rank?: number;
  read_until_ns?: number;
}

export interface RankMemory {
  rank: number;
  arena_bytes: number;
  scratch_bytes: number;
  state_bytes: { [state: string]: number };
  always_bytes: number;
  peak_bytes: number;
  peak_at_ns: number;
  peak_act: string;
  most_bytes_of_parts: number[];
  held: HeldTensor[];
}

// A TransferRow tells what a boxing sends and how fast (tools/trace/transfers.h).
export interface TransferRow {
  name: string;
  method: string;
  // What the transfer changes, and why, as the compiler decided; absent in traces of older builds.
  changes?: { from: string; to: string; tensors: number }[];
  from_stage?: number;
  to_stage?: number;
  why?: { kind: string; axis?: string; text: string }[];
  registers: number;
  links: number;
  bytes_per_step: number;
  messages_per_step: number;
  late_ns_per_step: number;
  under_way_ns_per_step: number;
  timed: number; // messages that were waited for
  way_ns?: number;
  bytes_per_second?: number;
  planned_way_ns?: number;
  planned_bytes_per_second?: number;
}

export interface WhySlow {
  critical_path: {
    first_step: number;
    last_step: number;
    step_ns: number;
    phases: { [phase: string]: number };
    ranks: { [rank: string]: number };
    in_transfer: number;
    between_acts: number;
  };
  path_lines: { share: number; ns_per_step: number; text: string }[];
  back_pressure: BackPressure;
  memory: { step: number; step_ns: number; ranks: RankMemory[] };
  transfers: TransferRow[];
  typical_step: number;
  step_paths: StepPath[];
  parts: Part[];
  wait_roots: { kind: "work" | "on the way" | "between acts"; name: string; ranks: number[]; share: number;
                ns_per_step: number }[];
  outliers: { step: number; ns: number }[];
  median_step_ns: number;
  recorded_step_ns: number;
  replayed_step_ns: number;
  slow_ranks: SlowRank[];
  advice: string;
  causes: { share: number; ns_per_step: number; text: string; view: string; find?: string }[];
  what_if_steps?: number; // the last steps of a long run, over which changes are replayed; absent: all
  what_if: WhatIf[];
}

export interface Report {
  plan: string;
  ranks: number;
  by_symmetry?: { text: string; ranks_simulated: number }; // of a simulation by symmetry: which ranks stand for all
  stages: number;
  micro_batches: number;
  first_step: number;
  last_step: number;
  left_out_step?: number; // the step before these, which fills pipelines and caches; absent: none is left out
  window_ns: number;
  step_ns: number;
  bubble: number;
  bubble_formula: number;
  schedule: string;
  pipeline_bubble: number;
  predicted_bubble: number;
  devices: Device[];
  exposed: { boxing: string; ns_per_step: number; share: number; share_sent: number; times: number }[];
  waits: { rank: number; for: "input" | "credit"; register: string; holder: string; total_ns: number; times: number;
           share: number }[];
  why_slow?: WhySlow;
  why_slow_error?: string;
  last_state?: LastState; // of a run that did not end whole
}

export interface LastState {
  missing_ranks: number[];
  sentences: string[];
  ranks: { rank: number; text: string }[];
}

// A Failure is a mark of the trace: a process or the whole job failed.
export interface Failure {
  at_ns: number;
  text: string;
  queue?: number; // the first of the rank that failed; absent: the job as a whole
}

// An OpenAct is the act that a rank had not done when the record ended.
export interface OpenAct {
  queue: number;
  since_ns: number;
  waits: boolean;
  text: string;
}

// The difference of two runs (tools/trace/run_diff.h). Times are of a step.
export interface DiffRow {
  cause: string;
  name: string;
  a_ns: number | null;
  b_ns: number | null;
  more_ns: number;
}

export interface Diff {
  a: { name: string; ranks: number; step_ns: number };
  b: { name: string; ranks: number; step_ns: number };
  verdict: string;
  actors_matched: number;
  actors_only_a: number;
  actors_only_b: number;
  steps: { step: number; a_ns: number | null; b_ns: number | null }[];
  parts: DiffRow[];
  path: DiffRow[];
  waits: DiffRow[];
  work: { name: string; phase: string; a_ns: number; b_ns: number; more_ns: number; a_act_ns: number; b_act_ns: number;
          matched: number; only_a: number; only_b: number }[];
}

// A plan before any run: the object of `weir plan --json` (tools/plan/plan_json.h).
export interface PlannedTensor {
  name: string;
  what: string; // "weight", "input", or the op that makes it
  role: "weight" | "input" | "output" | "inside";
  type: string;
  layout: string;
  why: string;
}

export interface PlannedFunction {
  name: string;
  first_call: string;
  calls: number;
  tensors: PlannedTensor[];
}

export interface PlannedBoxing {
  name: string;
  method: string;
  layouts: string;
  bytes_per_step: number;
  times: number;
  stages?: string;
  why?: string;
  busiest_link?: { from: number; to: number; bytes_per_step: number };
  bytes_between_hosts?: number;
}

export interface PlannedRank {
  rank: number;
  device: string;
  stage: number;
  actors: number;
  registers: number;
  arena_bytes: number;
  scratch_bytes: number;
  memory: {
    weight_bytes: number;
    optimiser_bytes: number;
    register_bytes: number;
    landing_bytes: number;
    scratch_bytes: number;
    most_alive_bytes: number;
    largest: { name: string; bytes: number; slots: number; from: string; until: string; alive_ns: number; why: string }[];
  };
}

export interface Plan {
  plan_id: string;
  mesh: string;
  micro_batches: number;
  fit: { fits: boolean; text: string; rank: number; rank_bytes: number; all_bytes: number; device_bytes_max?: number };
  rules_found?: { text: string; job_text: string }; // by a search, if the job left its rules to it
  lines: {
    job: string; step: string; memory: string; bytes: string; time?: string; hosts?: string; precision?: string;
  };
  warnings: string[];
  prediction: { costs: string; step_seconds: number; simulated: boolean };
  devices: { rank: number; name: string; computing: number; packing: number; waiting: number; bytes: number }[];
  schedule: { kind: string; bubble_of_even_parts?: number; predicted_bubble: number; text: string;
              parts: { stage: number; in_flight: number; calls: string[] }[] };
  bytes_per_step: number;
  boxings: PlannedBoxing[];
  functions: PlannedFunction[];
  ranks: PlannedRank[];
}

interface ColumnPlace {
  name: string;
  type: string;
  offset: number;
  count: number;
}

export interface RunObject {
  title: string;
  report: Report;
  diff?: Diff;
  // A rank of a simulation by symmetry stands for the ranks of its class, itself included.
  ranks: { rank: number; name: string; missing?: boolean; stands_for?: { ranks: number; text: string } }[];
  queues: { rank: number; name: string; missing?: boolean }[];
  steps: Step[];
  open_acts?: OpenAct[];
  failures?: Failure[];
  strings: string[];
  columns: ColumnPlace[];
  pending?: boolean; // the analysis is still to come: the report has only its head, and there are no paths
}

// What the analysis adds to a run.
export interface Analysis {
  report: Report;
  diff?: Diff;
  columns: Partial<Columns>;
}

// The columns by name; run_bundle.h says what each holds.
export interface Columns {
  queue_first_act: Uint32Array;
  act_begin: Float64Array;
  act_ns: Float32Array;
  act_actor: Uint32Array;
  act_step: Int32Array;
  act_micro_batch: Int32Array;
  act_chunk: Int32Array;
  act_wait: Uint8Array;
  act_wait_ns: Float32Array;
  act_waited_register: Int32Array;
  act_cause: Int32Array;
  actor_name: Uint32Array;
  actor_function: Uint32Array;
  actor_phase: Uint32Array;
  actor_rank: Uint32Array;
  actor_queue: Uint32Array;
  actor_planned_ns: Float64Array;
  register_name: Uint32Array;
  register_family: Uint32Array;
  register_bytes: Float64Array;
  register_slots: Int32Array;
  register_producer: Int32Array;
  register_crosses_ranks: Uint8Array;
  register_other_rank: Int32Array;
  register_most: Int32Array;
  register_full_ns: Float64Array;
  register_waited_input_ns: Float64Array;
  register_waited_credit_ns: Float64Array;
  register_first_consumer: Uint32Array;
  consumer_actor: Uint32Array;
  register_first_change: Uint32Array;
  change_at: Float64Array;
  change_in_use: Int32Array;
  path_first_segment: Uint32Array;
  path_first_group: Uint32Array;
  group_longest_segment: Uint32Array;
  segment_begin: Float64Array;
  segment_end: Float64Array;
  segment_cause: Uint8Array;
  segment_act: Int32Array;
  segment_rank: Int32Array;
  segment_sender: Int32Array;
  segment_register: Int32Array;
  planned_begin: Float64Array;
  planned_ns: Float64Array;
  planned_actor: Uint32Array;
  planned_micro_batch: Int32Array;
}

export interface Run {
  object: RunObject;
  columns: Columns;
}

// A Bundle has a run, or the plan of a job, or a plan with the run of its simulation.
export interface Bundle {
  title: string;
  plan?: Plan;
  no_run?: string; // why a plan has no run
  run?: Run;
}

const MAGIC = "WEIRVIEW";
const VERSION = 1;
const HEADER_BYTES = 16;

const ARRAYS: { [type: string]: new (buffer: ArrayBuffer, offset: number, count: number) => Column } = {
  u8: Uint8Array,
  i32: Int32Array,
  u32: Uint32Array,
  f32: Float32Array,
  f64: Float64Array,
};

// Returns the object of a bundle and its columns. Throws an Error whose message a person can read if the bytes are no bundle of
// this version.
function decode(bytes: ArrayBuffer): { object: any; columns: { [name: string]: Column } } {
  const head = new DataView(bytes);
  const magic = bytes.byteLength < HEADER_BYTES ? "" : new TextDecoder().decode(new Uint8Array(bytes, 0, 8));
  if (magic !== MAGIC) throw new Error("the page got no run from weir view");
  const size = head.getUint32(8, true);
  const version = head.getUint32(12, true);
  if (version !== VERSION) {
    throw new Error(`the run has version ${version} and the page knows ${VERSION}: load the page again`);
  }
  const object = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, HEADER_BYTES, size)));
  const columns: { [name: string]: Column } = {};
  for (const place of object.columns) {
    columns[place.name] = new ARRAYS[place.type](bytes, HEADER_BYTES + size + place.offset, place.count);
  }
  return { object, columns };
}

export function decodeBundle(bytes: ArrayBuffer): Bundle {
  const { object, columns } = decode(bytes);
  const { title, plan, no_run } = object as { title: string; plan?: Plan; no_run?: string };
  const run = no_run === undefined ? { object: object as RunObject, columns: columns as unknown as Columns } : undefined;
  return { title, plan, no_run, run };
}

export function decodeAnalysis(bytes: ArrayBuffer): Analysis {
  const { object, columns } = decode(bytes);
  return { report: object.report, diff: object.diff, columns: columns as Partial<Columns> };
}

// Completes a run with its analysis.
export function complete(run: Run, analysis: Analysis): void {
  run.object.report = analysis.report;
  run.object.diff = analysis.diff;
  run.object.pending = undefined;
  Object.assign(run.columns, analysis.columns);
}

// Returns the place of the first number above `value` in the part [from, to) of an ascending array.
export function firstAbove(array: Float64Array, value: number, from: number, to: number): number {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (array[middle] > value) to = middle;
    else from = middle + 1;
  }
  return from;
}
