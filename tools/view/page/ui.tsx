// Small parts of pages: words with their meaning, tables, bars.

import { Component, h } from "preact";
import { count } from "./units";
import { WORDS } from "./words";

// What stands in a cell or between two tags.
export type Content = JSX.Element | JSX.Element[] | string | number | boolean | null | undefined;

const MEANING_WIDTH = 320; // pixels, as in style.css
const MARGIN = 8;

// Lays a meaning below its word, or above it at the end of the window. The edges of tables must not cut the meaning off,
// so its place is one of the window.
function placeMeaning(term: HTMLElement): void {
  const meaning = term.lastElementChild as HTMLElement;
  const word = term.getBoundingClientRect();
  meaning.style.left = `${Math.max(MARGIN, Math.min(word.left, window.innerWidth - MEANING_WIDTH - 2 * MARGIN))}px`;
  const isLow = word.bottom > 0.75 * window.innerHeight;
  meaning.style.top = isLow ? "auto" : `${word.bottom + 4}px`;
  meaning.style.bottom = isLow ? `${window.innerHeight - word.top + 4}px` : "auto";
}

let lastTerm: HTMLElement | undefined; // whose meaning was shown last

function showMeaning(event: Event): void {
  lastTerm = event.currentTarget as HTMLElement;
  placeMeaning(lastTerm);
}

// A meaning that stays while the page scrolls goes with its word. Tables and graphs scroll, too.
window.addEventListener("scroll", () => { if (lastTerm !== undefined) placeMeaning(lastTerm); },
  { capture: true, passive: true });

// A word with its meaning, shown when the pointer or the focus is on it.
export function Term({ word, children }: { word: string; children?: Content }): JSX.Element {
  const meaning = WORDS[word];
  if (meaning === undefined) throw new Error(`no meaning for the word ${word}`);
  return (
    <span class="term" tabIndex={0} onMouseEnter={showMeaning} onFocus={showMeaning}>
      {children === undefined || (Array.isArray(children) && children.length === 0) ? word : children}
      <span class="meaning" role="tooltip">{meaning}</span>
    </span>
  );
}

export interface ColumnOf<Row> {
  title: Content;
  number?: boolean;
  cell: (row: Row) => Content;
}

interface TableProps<Row> {
  name: string;
  columns: ColumnOf<Row>[];
  rows: Row[];
  most?: number; // rows at first; the reader may ask for more
}

const MORE_ROWS = 500; // that one click adds

export class Table<Row> extends Component<TableProps<Row>, { more: number }> {
  constructor(props: TableProps<Row>) {
    super(props);
    this.state = { more: 0 };
  }

  render(): JSX.Element {
    const { name, columns, rows, most } = this.props;
    const shown = most === undefined ? rows : rows.slice(0, most + this.state.more);
    const hidden = rows.length - shown.length;
    const next = Math.min(hidden, MORE_ROWS);
    return (
      <div class="table" role="region" aria-label={name} tabIndex={0}>
        <table>
          <caption>{name}</caption>
          <thead>
            <tr>{columns.map((c) => <th scope="col" class={c.number ? "number" : ""}>{c.title}</th>)}</tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr>{columns.map((c) => <td class={c.number ? "number" : ""}>{c.cell(row)}</td>)}</tr>
            ))}
          </tbody>
        </table>
        {rows.length === 0 && <p class="note">None.</p>}
        {hidden > 0 && (
          <p class="note">
            {count(hidden)} more {hidden === 1 ? "row is" : "rows are"} not shown.{" "}
            <button class="link" onClick={() => this.setState({ more: this.state.more + next })}>
              Show {next < hidden ? `the next ${count(next)}` : hidden === 1 ? "it" : "them"}</button>
          </p>
        )}
      </div>
    );
  }
}

export function Bar({ share, colour, label }: { share: number; colour: string; label: string }): JSX.Element {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return (
    <span class="bar" role="img" aria-label={label}>
      <span style={{ width, background: colour }} />
    </span>
  );
}
