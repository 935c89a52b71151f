import { num } from '../format';

const units = ['bytes', 'KiB', 'MiB'];

/** 812 bytes, 1.5 KiB. */
export function bytes(n: number): string {
	let unit = 0;
	for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
	return `${num(unit === 0 ? n : Math.round(n * 10) / 10)} ${n === 1 && unit === 0 ? 'byte' : units[unit]}`;
}

// The server replaces hidden values with this.
const hidden = /(\[redacted\])/;

/** A payload or a result; never rendered as HTML. */
export function Text({ of, label }: { of: string | undefined; label: string }) {
	if (of === undefined) return <p class="hint">There is nothing to show.</p>;
	return (
		<pre class="text" tabIndex={0} role="group" aria-label={label}>
			<bdi dir="ltr">{of.split(hidden).map((part, i) => (i % 2 ? <mark key={i} title="Hidden by the server">{part}</mark> : part))}</bdi>
		</pre>
	);
}
