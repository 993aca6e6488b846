// The page: its head, the list of views, and the view that the address names.

import { Component, h } from "preact";
import { Run } from "./bundle";
import { Compare } from "./compare";
import { QueueDetail } from "./detail";
import { Memory } from "./memory";
import { Path } from "./path";
import { Pipeline } from "./pipeline";
import { Pressure } from "./pressure";
import { Registers } from "./registers";
import { Skew } from "./skew";
import { hashOf, readState, State } from "./state";
import { Devices, Transfers } from "./tables";
import { Timeline } from "./timeline";
import { time } from "./units";
import { Verdict } from "./verdict";
import { ViewProps } from "./view";

const VIEWS: { id: string; title: string; show: (props: ViewProps) => JSX.Element;
                 has?: (run: Run) => boolean }[] = [
  { id: "compare", title: "Two runs", show: (props) => <Compare {...props} />, has: (run) => run.object.diff !== undefined },
  { id: "verdict", title: "Verdict", show: (props) => <Verdict {...props} /> },
  { id: "path", title: "Critical path", show: (props) => <Path {...props} /> },
  { id: "timeline", title: "Timeline", show: (props) => <Timeline {...props} /> },
  { id: "pipeline", title: "Pipeline", show: (props) => <Pipeline {...props} />, has: (run) => run.object.report.stages > 1 },
  { id: "pressure", title: "Back-pressure", show: (props) => <Pressure {...props} /> },
  { id: "registers", title: "Registers", show: (props) => <Registers {...props} /> },
  { id: "memory", title: "Memory", show: (props) => <Memory {...props} /> },
  { id: "devices", title: "Devices and waits", show: (props) => <Devices {...props} /> },
  { id: "transfers", title: "Transfers", show: (props) => <Transfers {...props} /> },
  { id: "skew", title: "Skew", show: (props) => <Skew {...props} /> },
];

export class App extends Component<{ run: Run; detail: QueueDetail[] }, State> {
  private readonly onHash = () => this.setState(this.stateOfAddress());

  constructor(props: { run: Run; detail: QueueDetail[] }) {
    super(props);
    this.state = readState(location.hash);
  }
  // Fields that the address lacks must go away.
  private stateOfAddress(): State {
    const none: State = { view: "", from: undefined, to: undefined, act: undefined, register: undefined, step: undefined, rank: undefined, node: undefined,
                          find: undefined, colour: undefined };
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

  render(): JSX.Element {
    const { run, detail } = this.props;
    const views = VIEWS.filter((v) => v.has === undefined || v.has(run));
    const view = views.find((v) => v.id === this.state.view) || views[0];
    const report = run.object.report;
    // The library changes its state in place. A view sees a new address by a new object.
    const state = Object.assign({}, this.state);
    return (
      <div class="page">
        <header>
          <h1>{run.object.title}</h1>
          <p class="note">
            plan {report.plan}, {report.ranks} devices{report.stages > 1 && `, ${report.stages} stages`}
            {report.micro_batches > 1 && `, ${report.micro_batches} micro-batches`}
            {report.step_ns > 0 && `, ${time(report.step_ns)} a step`}
          </p>
        </header>
        <nav aria-label="Views">
          <ul>
            {views.map((v) => (
              <li><a href={hashOf({ view: v.id })} aria-current={v === view ? "page" : undefined}>{v.title}</a></li>
            ))}
          </ul>
        </nav>
        <main>{view.show({ run, detail, state, go: (change) => this.go(change) })}</main>
      </div>
    );
  }
}
