// A run that goes on, as its server tells it: the state and the history of tools/live/live_run.h.

export interface LiveStep {
  step: number;
  loss: number | null; // null: not finite or not known
  grad_norm: number | null;
  lr: number | null;
  items_per_second: number | null;
  step_seconds: number | null;
  seconds_left: number | null;
  mfu?: number | null; // model flops over the peak's
  begins?: boolean; // the first after a restart or a recovery, which may repeat steps
  parts?: number[]; // shares of the step by cause, in the order of part_names; absent: not known
}

export interface LiveWorker {
  ranks: number[];
  host: string; // empty: the starter's machine
  pid: number;
  state: "connecting" | "connected" | "ended";
  silent_ms: number;
  acts: number;
  resident_bytes: number; // 0: not known
  activity: string;
}

export interface LiveRank {
  rank: number;
  stage: number;
  busy: number | null;
  parts: number[];
}

export interface LiveState {
  pid: number;
  title: string;
  started_unix_ms: number;
  updated_unix_ms: number;
  phase: string;
  phase_since_unix_ms: number;
  doing?: { what: string; done: number; of: number }; // before the first step
  resident_bytes: number;
  part_names: string[];
  facts?: {
    steps: number;
    item: string;
    items_per_step: number;
    parameters: number;
    mesh: string;
    where: string;
    ranks: number;
    threads_per_rank: number;
    bytes_per_rank: number;
    bytes_of_rank: number[]; // as planned
    flops_per_step: number | null;
    peak_flops: number | null;
    peak_from: string; // where the peak is from, or what would tell it
  };
  step?: LiveStep;
  stepped_unix_ms?: number;
  evaluation?: { step: number; text: string };
  restart?: LiveRestart; // the last one
  recovery?: LiveRecovery; // the last one
  growth?: LiveGrowth; // the last one
  work?: LiveRank[];
  epoch?: number; // of the processes; absent: not told
  workers?: LiveWorker[];
  warnings: number;
  end?: { code: number; report: string };
}

// A new start of all processes after a failure.
export interface LiveRestart {
  count: number; // of the run so far
  after_step: number;
  report: string; // of the failure
  earlier_reports?: string[]; // of failures since the last step before that one; absent: an older Weir
}

// A return of lost processes while the others live on.
export interface LiveRecovery {
  count: number; // of the run so far
  who: string; // the lost ranks, in words
  after_step: number;
  to_step: number;
  seconds: number | null; // from the first failure until a step was done again
  report: string; // of the last failure
  earlier_reports?: string[]; // of failures since the last step before that one; absent: an older Weir
}

// A return of lost processes to a job whose mesh had become smaller.
export interface LiveGrowth {
  count: number; // of the run so far
  after_step: number;
  seconds: number | null; // from then until a step was done on the larger mesh
  how: string;
}

export interface LiveEvent {
  at_ms: number;
  phase?: string;
  step?: LiveStep;
  evaluation?: { step: number; text: string };
  restart?: LiveRestart;
  recovery?: LiveRecovery;
  growth?: LiveGrowth;
  said?: string;
}

// Everything that the page knows of the run. A new answer adds to it.
export interface LiveRun {
  state?: LiveState;
  isAlive: boolean;
  steps: (LiveStep & { at_ms: number })[];
  events: LiveEvent[]; // all but steps
  next: number; // byte of the history
  isRestarted: boolean; // since the last step
  isLost: boolean; // the server does not answer
  heard: number; // ms since 1970: when it last did
}

export function emptyRun(): LiveRun {
  return { isAlive: true, steps: [], events: [], next: 0, isRestarted: false, isLost: false, heard: Date.now() };
}

export function isOver(run: LiveRun): boolean {
  return run.state !== undefined && (run.state.end !== undefined || !run.isAlive);
}

// Fills in what a run of an older Weir does not tell.
function complete(state: LiveState): LiveState {
  state.part_names = state.part_names || [];
  for (const rank of state.work || []) rank.parts = rank.parts || [];
  if (state.facts) state.facts.bytes_of_rank = state.facts.bytes_of_rank || [];
  return state;
}

// Asks the server for what is new. Returns the run with it, and whether more history waits.
export async function ask(run: LiveRun): Promise<{ run: LiveRun; more: boolean }> {
  let told: { state: LiveState; is_alive: boolean; history: string; next: number };
  try {
    const answer = await fetch(`live?from=${run.next}`);
    if (!answer.ok) throw new Error(String(answer.status));
    told = await answer.json();  // the server may go in the middle of its answer
  } catch {
    return { run: Object.assign({}, run, { isLost: true }), more: false };
  }
  const steps = run.steps.slice();
  const events = run.events.slice();
  let { isRestarted } = run;
  for (const line of told.history.split("\n")) {
    if (line === "") continue;
    const event: LiveEvent = JSON.parse(line);
    if (event.restart || event.recovery) isRestarted = true;
    if (event.step) {
      steps.push(Object.assign({ at_ms: event.at_ms, begins: isRestarted }, event.step));
      isRestarted = false;
    } else {
      events.push(event);
    }
  }
  return {
    run: { state: complete(told.state), isAlive: told.is_alive, steps, events, next: told.next, isRestarted,
           isLost: false, heard: Date.now() },
    more: told.history !== "",
  };
}
