// Small parts of pages: words with their meaning, tables, bars.

import { h } from "preact";
import { WORDS } from "./words";

// What stands in a cell or between two tags.
export type Content = JSX.Element | JSX.Element[] | string | number | boolean | null | undefined;

// A word with its meaning, shown when the pointer or the focus is on it.
export function Term({ word, children }: { word: string; children?: Content }): JSX.Element {
  const meaning = WORDS[word];
  if (meaning === undefined) throw new Error(`no meaning for the word ${word}`);
  return (
    <span class="term" tabIndex={0}>
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

export function Table<Row>({ name, columns, rows, most }: {
  name: string;
  columns: ColumnOf<Row>[];
  rows: Row[];
  most?: number;
}): JSX.Element {
  const shown = most === undefined ? rows : rows.slice(0, most);
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
      {shown.length < rows.length && <p class="note">{`${rows.length - shown.length} more rows are not shown.`}</p>}
    </div>
  );
}

export function Bar({ share, colour, label }: { share: number; colour: string; label: string }): JSX.Element {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return (
    <span class="bar" role="img" aria-label={label}>
      <span style={{ width, background: colour }} />
    </span>
  );
}
