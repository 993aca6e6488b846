// The page: its head, the list of views, and the view that the address names.

import { Component, h } from "preact";
import { Bundle, Run } from "./bundle";
import { Compare } from "./compare";
import { QueueDetail } from "./detail";
import { Memory } from "./memory";
import { Path } from "./path";
import { Pipeline } from "./pipeline";
import { PlanView } from "./plan";
import { Pressure } from "./pressure";
import { Registers } from "./registers";
import { Skew } from "./skew";
import { hashOf, readState, State } from "./state";
import { Devices, Transfers } from "./tables";
import { Timeline } from "./timeline";
import { Term } from "./ui";
import { count, time } from "./units";
import { Verdict } from "./verdict";
import { ViewProps } from "./view";

const VIEWS: { id: string; title: string; show: (props: ViewProps) => JSX.Element;
                 has?: (run: Run) => boolean }[] = [
  { id: "compare", title: "Two runs", show: (props) => <Compare {...props} />, has: (run) =>
    run.object.diff !== undefined },
  { id: "verdict", title: "Verdict", show: (props) => <Verdict {...props} /> },
  { id: "path", title: "Critical path", show: (props) => <Path {...props} /> },
  { id: "timeline", title: "Timeline", show: (props) => <Timeline {...props} /> },
  { id: "pipeline", title: "Pipeline", show: (props) => <Pipeline {...props} />, has: (run) =>
    run.object.report.stages > 1 },
  { id: "pressure", title: "Back-pressure", show: (props) => <Pressure {...props} /> },
  { id: "registers", title: "Registers", show: (props) => <Registers {...props} /> },
  { id: "memory", title: "Memory", show: (props) => <Memory {...props} /> },
  { id: "devices", title: "Devices and waits", show: (props) => <Devices {...props} /> },
  { id: "transfers", title: "Layouts", show: (props) => <Transfers {...props} /> },
  { id: "skew", title: "Skew", show: (props) => <Skew {...props} /> },
];

const BEFORE_ANALYSIS = "timeline"; // the view that needs no analysis

interface Shown {
  id: string;
  title: string;
  show: () => JSX.Element;
}

interface AppProps {
  bundle: Bundle;
  detail: QueueDetail[];
  doing: string; // a sentence about the analysis that is still to come; empty: the run is complete
}

export class App extends Component<AppProps, State> {
  private readonly onHash = () => this.setState(this.stateOfAddress());
  private seen: { hash: string; state: State } = { hash: "", state: { view: "" } };

  constructor(props: AppProps) {
    super(props);
    // The acts are known first. The page stays there when the analysis comes.
    if (props.doing && location.hash === "") history.replaceState(null, "", hashOf({ view: BEFORE_ANALYSIS }));
    this.state = readState(location.hash);
  }
  // Fields that the address lacks must go away.
  private stateOfAddress(): State {
    const none: State = { view: "", from: undefined, to: undefined, act: undefined, register: undefined,
      step: undefined, rank: undefined, node: undefined,
                          function: undefined, inside: undefined, find: undefined, open: undefined,
      colour: undefined };
    return Object.assign(none, readState(location.hash));
  }
  componentDidMount(): void {
    window.addEventListener("hashchange", this.onHash);
  }
  componentWillUnmount(): void {
    window.removeEventListener("hashchange", this.onHash);
  }

  // A new view or selection is a new entry of the browser's history; a move within the timeline is not.
  private go(change: Partial<State>): void {
    const next: State = Object.assign({}, this.stateOfAddress(), change);
    const hash = hashOf(next);
    if (hash === location.hash) return;
    if (change.view !== undefined) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
    this.onHash();
  }

  private views(): Shown[] {
    const { bundle, detail } = this.props;
    const { plan, run } = bundle;
    // The library changes its state in place. A view sees a new address, and nothing else, by a new object.
    const hash = hashOf(this.state);
    if (this.seen.hash !== hash) this.seen = { hash, state: Object.assign({}, this.state) };
    const { state } = this.seen;
    const go = (change: Partial<State>) => this.go(change);
    const views: Shown[] = [];
    if (plan !== undefined) views.push({ id: "plan", title: "Plan", show: () =>
      <PlanView plan={plan} bundle={bundle} state={state} go={go} /> });
    if (run === undefined) return views;
    const shown = VIEWS.filter((v) => v.has === undefined || v.has(run));
    const isThere = (id: string) => !run.object.pending || id === BEFORE_ANALYSIS;
    return views.concat(shown.map((v) => ({
      id: v.id, title: v.title,
      show: () => isThere(v.id) ? v.show({ run, detail, state, go })
        : <section><h2>{v.title}</h2><p>{this.props.doing}</p></section>,
    })));
  }

  // Returns whom the ranks of a simulation by symmetry stand for.
  private symmetry(): JSX.Element | null {
    const { run } = this.props.bundle;
    const of = run === undefined ? undefined : run.object.report.by_symmetry;
    return of === undefined ? null : (
      <details class="note">
        <summary>By symmetry: {count(of.ranks_simulated)} simulated ranks stand
          for {count(run!.object.report.ranks)}</summary>
        One rank of each <Term word="rank class">class</Term> is simulated. {of.text}.
      </details>
    );
  }

  // Returns the line below the title.
  private about(): JSX.Element {
    const { plan, run } = this.props.bundle;
    if (plan !== undefined) {
      return <p class="note">plan {plan.plan_id} before any run{run !== undefined &&
        "; the other views show its simulated step"}</p>;
    }
    const report = run!.object.report;
    // The verdict is about the same steps.
    const step_ns = report.why_slow === undefined ? report.step_ns : report.why_slow.recorded_step_ns;
    return (
      <p class="note">
        plan {report.plan}, {count(report.ranks)} {report.ranks === 1 ? "device" : "devices"}{report.stages > 1 && `, ${report.stages} stages`}
        {report.micro_batches > 1 && `, ${report.micro_batches} micro-batches`}
        {step_ns > 0 && `, ${time(step_ns)} a step`}
      </p>
    );
  }

  render(): JSX.Element {
    const views = this.views();
    const view = views.find((v) => v.id === this.state.view) || views[0];
    return (
      <div class="page">
        <header>
          <h1>{this.props.bundle.title}</h1>
          {this.about()}
          {this.symmetry()}
          {this.props.doing && <p class="note" role="status">{this.props.doing} The timeline is there.</p>}
        </header>
        <nav aria-label="Views">
          <ul>
            {views.map((v) => (
              <li><a href={hashOf({ view: v.id })} aria-current={v === view ? "page" : undefined}>{v.title}</a></li>
            ))}
          </ul>
        </nav>
        <main>{view.show()}</main>
      </div>
    );
  }
}
