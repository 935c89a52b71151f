import type { ComponentChildren } from 'preact';
import { num } from '../format';

export interface Column<T> {
	label: string;
	/** The name by which the API sorts; a column without one cannot be sorted. */
	sort?: string;
	/** Right-aligned, with digits of equal width. */
	figure?: boolean;
	/** Shown to screen readers only: for a column of buttons. */
	quiet?: boolean;
	cell: (row: T) => ComponentChildren;
}
export interface Sorting { by: string; ascending: boolean; change: (by: string, ascending: boolean) => void }

// On a narrow page the style sheet turns each row into a card. The roles are explicit because
// browsers drop them when the table layout is changed.
export function Table<T>({ caption, columns, rows, id, sorting, busy }: {
	caption: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; sorting?: Sorting; busy?: boolean;
}) {
	return (
		<table role="table" class={busy ? 'data busy' : 'data'} aria-busy={busy}>
			<caption class="vh">{caption}</caption>
			<thead role="rowgroup">
				<tr role="row">
					{columns.map((c) => {
						const on = sorting && c.sort !== undefined && sorting.by === c.sort;
						return (
							<th key={c.label} role="columnheader" scope="col" class={c.figure ? 'figure' : ''}
								aria-sort={on ? (sorting.ascending ? 'ascending' : 'descending') : undefined}>
								{sorting && c.sort !== undefined
									? <button type="button" class="sort" onClick={() => sorting.change(c.sort!, on ? !sorting.ascending : c.sort === 'tenant' || c.sort === 'drains')}>
										{c.label}<span aria-hidden="true">{on ? (sorting.ascending ? '↑' : '↓') : ''}</span>
									</button>
									: <span class={c.quiet ? 'vh' : ''}>{c.label}</span>}
							</th>
						);
					})}
				</tr>
			</thead>
			<tbody role="rowgroup">
				{rows.map((row) => (
					<tr key={id(row)} role="row">
						{columns.map((c) => <td key={c.label} role="cell" data-label={c.quiet ? undefined : c.label} class={c.figure ? 'figure' : ''}>{c.cell(row)}</td>)}
					</tr>
				))}
			</tbody>
		</table>
	);
}

/** "51–100 of 100,000", with buttons for other pages. */
export function Paging({ offset, limit, total, go }: { offset: number; limit: number; total: number; go: (offset: number) => void }) {
	if (total <= limit && offset === 0) return null;
	const last = Math.max(0, Math.floor((total - 1) / limit) * limit);
	const to = (text: string, label: string, at: number, off: boolean) =>
		<button type="button" aria-label={label} aria-disabled={off} onClick={() => off || go(at)}>{text}</button>;
	return (
		<nav class="paging" aria-label="Pages">
			{to('«', 'First page', 0, offset <= 0)}
			{to('‹', 'Previous page', Math.max(0, offset - limit), offset <= 0)}
			<span>{num(Math.min(offset + 1, total))}–{num(Math.min(offset + limit, total))} of {num(total)}</span>
			{to('›', 'Next page', Math.min(last, offset + limit), offset >= last)}
			{to('»', 'Last page', last, offset >= last)}
		</nav>
	);
}

/** Figures with labels. */
export function Stats({ children }: { children: ComponentChildren }) {
	return <dl class="stats">{children}</dl>;
}
export function Stat({ label, children, note, tone }: { label: string; children: ComponentChildren; note?: ComponentChildren; tone?: 'bad' | 'warn' | undefined }) {
	return <div class={tone}><dt>{label}</dt><dd>{children}{note != null && <small>{note}</small>}</dd></div>;
}
