import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { num, precise } from '../format';
import { serverNow } from '../live';
import { colours } from '../theme';

export interface Series {
	label: string;
	/** The custom property that has the colour. */
	colour: string;
	values: (number | null)[];
	dashed?: boolean;
	/** Drawn wider, so that it shows where later series cover it. */
	broad?: boolean;
	filled?: boolean;
}

/** The summary of a chart without values. */
export const nothingYet = 'Nothing is known of the last ten minutes yet.';

/** Something that happened, marked where it did. */
export interface Mark { at: number; text: string }

/** Returns what is drawn: the values, or, stacked, their sums from the last series up. */
function drawnOf(series: Series[], stacked: boolean): (number | null)[][] {
	if (!stacked) return series.map((s) => s.values);
	const sums = series.map((s) => s.values.map((v) => v ?? 0));
	for (let n = sums.length - 2; n >= 0; n--) sums[n] = sums[n]!.map((v, i) => v + sums[n + 1]![i]!);
	return sums;
}

/**
 * Lines over the last ten minutes. Screen readers cannot read a canvas: they read the summary
 * instead, and a button opens a table of values.
 */
export function Chart({ x, series, summary, height = 132, unit = '/s', stacked = false, marks = [] }: {
	/** Seconds since the epoch. */
	x: number[]; series: Series[]; summary: string; height?: number; unit?: string;
	/** One above the other, the first at the top. */
	stacked?: boolean;
	marks?: Mark[];
}) {
	const place = useRef<HTMLDivElement>(null), plot = useRef<uPlot | null>(null);
	const data = [x, ...drawnOf(series, stacked)] as uPlot.AlignedData;
	const latest = useRef({ data, series, marks });
	latest.current = { data, series, marks };
	const drawn = colours.value;
	const shape = series.map((s) => s.label).join('|');
	useEffect(() => {
		const el = place.current!, style = getComputedStyle(el);
		// The property can be light-dark(…), which not every canvas accepts; a computed colour is resolved.
		const colour = (name: string) => {
			el.style.color = `var(${name})`;
			return style.color;
		};
		const axis = (values: uPlot.Axis['values'], size: number, space: number): uPlot.Axis => ({
			stroke: colour('--text-2'), font: `11px ${style.fontFamily}`, grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, values: values!, size, space, gap: 4,
		});
		const two = (n: number) => String(n).padStart(2, '0');
		const u = new uPlot({
			width: el.clientWidth || 300, height,
			legend: { show: false }, padding: [8, 14, 0, 0],
			cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
			scales: { x: { time: false, range: (_u, _min, max) => [(max ?? serverNow() / 1000) - 600, max ?? serverNow() / 1000] }, y: { range: (_u, _min, max) => [0, Math.max(max * 1.1, 1)] } },
			axes: [
				{ incrs: [60, 120, 300, 900, 3600], ...axis((_u, at) => at.map((t) => { const d = new Date(t * 1000); return `${two(d.getHours())}:${two(d.getMinutes())}`; }), 20, 60) },
				axis((_u, at) => at.map((v) => num(v)), 38, 28),
			],
			series: [{}, ...series.map((s): uPlot.Series => ({
				label: s.label, stroke: colour(s.colour), width: s.broad ? 5 : s.dashed ? 1.5 : 2, points: { show: false },
				...(s.dashed ? { dash: [5, 4] } : {}), ...(stacked ? { fill: colour(s.colour) } : s.filled ? { fill: colour(s.colour + '-fill') } : {}),
			}))],
			hooks: {
				setCursor: [(u) => {
					const i = u.cursor.idx, { series, marks } = latest.current, t = i == null ? 0 : u.data[0][i]!;
					const near = marks.filter((m) => Math.abs(m.at - t) < 8).map((m) => m.text);
					el.dataset['at'] = i == null ? '' : [precise(t * 1000).slice(0, 8), ...series.filter((s) => !stacked || s.values[i]).map((s) => `${s.label} ${num(s.values[i] ?? 0)}${unit}`), ...near].join('  ');
				}],
				draw: [(u) => {
					u.ctx.save();
					u.ctx.strokeStyle = colour('--text');
					u.ctx.setLineDash([2, 3]);
					for (const { at } of latest.current.marks) {
						const left = u.valToPos(at, 'x', true);
						if (left < u.bbox.left) continue;
						u.ctx.beginPath();
						u.ctx.moveTo(left, u.bbox.top);
						u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
						u.ctx.stroke();
					}
					u.ctx.restore();
				}],
			},
		}, latest.current.data, el);
		plot.current = u;
		u.root.setAttribute('aria-hidden', 'true');
		const resize = new ResizeObserver(() => el.clientWidth > 0 && u.setSize({ width: el.clientWidth, height }));
		resize.observe(el);
		return () => {
			resize.disconnect();
			u.destroy();
			plot.current = null;
		};
	}, [drawn, shape, height, stacked]);
	useEffect(() => plot.current?.setData(data)); // the arrays grow in place
	return (
		<figure class="chart">
			<div class="plot" ref={place} style={{ '--height': height + 'px' }} role="img" aria-label={summary} />
			<figcaption>
				<ul class="legend">
					{series.map((s) => <li key={s.label} class={s.broad || stacked ? 'broad' : s.dashed ? 'dashed' : ''} style={{ '--line-colour': `var(${s.colour})` }}><bdi>{s.label}</bdi></li>)}
					{marks.map((m) => <li key={m.at + m.text} class="mark">{precise(m.at * 1000).slice(0, 5)} <bdi>{m.text}</bdi></li>)}
				</ul>
				<ChartTable x={x} series={series} unit={unit} />
			</figcaption>
		</figure>
	);
}

/** A table of every 30th value, newest first. */
function ChartTable({ x, series, unit }: { x: number[]; series: Series[]; unit: string }) {
	const rows: number[] = [];
	for (let i = x.length - 1; i >= 0 && rows.length < 10; i -= 30) rows.push(i);
	return (
		<details class="figures">
			<summary>Figures</summary>
			<table>
				<thead><tr><th scope="col">Time</th>{series.map((s) => <th key={s.label} scope="col" class="figure">{s.label}</th>)}</tr></thead>
				<tbody>{rows.map((i) => (
					<tr key={x[i]}><th scope="row">{precise(x[i]! * 1000).slice(0, 8)}</th>{series.map((s) => <td key={s.label} class="figure">{s.values[i] == null ? '–' : num(s.values[i]!) + unit}</td>)}</tr>
				))}</tbody>
			</table>
		</details>
	);
}
