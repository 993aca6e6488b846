// How a run ended that did not end whole: which ranks are missing, and what each of the others had not done.

import { h } from "preact";
import { Run } from "./bundle";
import { Table } from "./ui";
import { time } from "./units";
import { ViewProps } from "./view";

const ROWS = 60;
const SHOWN = 0.15; // the share of the run that the timeline shows before its end

export function Ending({ run, go }: { run: Run; go: ViewProps["go"] }): JSX.Element | null {
  const state = run.object.report.last_state;
  const acts = run.object.open_acts;
  if (state === undefined || acts === undefined) return null;
  const end = endOf(run);
  const toEnd = () => go({ view: "timeline", from: end * (1 - SHOWN), to: shownUntil(run), act: undefined });
  return (
    <div class="ending">
      <p class="advice">This run did not end whole. {state.sentences.join(" ")}</p>
      <Table name="The last state: the first act that each rank had not done" rows={acts} most={ROWS} columns={[
        { title: "device", cell: (act) => run.object.queues[act.queue].name },
        { title: "since", number: true, cell: (act) => time(act.since_ns) },
        { title: "what it needed, and from whom", cell: (act) => (
          <button class="link" onClick={toEnd}>{act.text}</button>) },
      ]} />
    </div>
  );
}

// The timeline shows this share more than the run, for what was open at its end.
const OPEN_SHARE = 0.05;

// Returns the time up to which the timeline shows a run: behind its last act, and behind its failures.
export function shownUntil(run: Run): number {
  const end = endOf(run);
  if (run.object.open_acts === undefined) return end;
  const failures = (run.object.failures || []).map((failure) => failure.at_ns);
  return (1 + OPEN_SHARE) * Math.max(end, ...failures);
}

// Returns the end of the last act.
export function endOf(run: Run): number {
  const c = run.columns;
  let end = 0;
  for (let q = 0; q + 1 < c.queue_first_act.length; ++q) {
    const last = c.queue_first_act[q + 1] - 1;
    if (last >= c.queue_first_act[q]) end = Math.max(end, c.act_begin[last] + c.act_ns[last]);
  }
  return end;
}
