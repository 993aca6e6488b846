// The part of the address behind `#` holds what the page shows, so that a link leads back to it.

export interface State {
  view: string;
  from?: number; // ns: the part of the timeline
  to?: number;
  act?: number; // the act that is selected
  register?: number;
  step?: number;
  rank?: number;
  node?: number; // of the graph of actors
  function?: number; // of a plan
  inside?: number; // 1: with the tensors that stay inside the function
  find?: string;
  open?: string; // the queues of the timeline whose actors have rows: their numbers, with commas between
  colour?: "phase" | "micro-batch";
}

const NUMBERS = ["from", "to", "act", "register", "step", "rank", "node", "function", "inside"] as const;

export function readState(hash: string): State {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const state: State = { view: fields.get("view") || "" };
  for (const name of NUMBERS) {
    const text = fields.get(name);
    if (text !== null && isFinite(Number(text))) state[name] = Number(text);
  }
  const find = fields.get("find");
  if (find) state.find = find;
  const open = fields.get("open");
  if (open !== null && /^\d+(,\d+)*$/.test(open)) state.open = open;
  if (fields.get("colour") === "micro-batch") state.colour = "micro-batch";
  return state;
}

export function hashOf(state: State): string {
  const fields = new URLSearchParams();
  fields.set("view", state.view);
  for (const name of NUMBERS) {
    const value = state[name];
    if (value !== undefined) fields.set(name, String(Math.round(value)));
  }
  if (state.find) fields.set("find", state.find);
  if (state.open) fields.set("open", state.open);
  if (state.colour) fields.set("colour", state.colour);
  return "#" + fields.toString();
}
